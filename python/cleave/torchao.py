"""torchao's quantize_ with Cleave's layers.

from torchao.quantization import quantize_
from cleave.torchao import CleaveW4A16Config, CleaveW8A8Config
quantize_(model, CleaveW8A8Config("float8_e4m3fn"), filter_fn)
quantize_(model, CleaveW4A16Config(group_size=64), filter_fn)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from torch import nn
from torchao.core.config import AOBaseConfig
from torchao.quantization.transform_module import register_quantize_module_handler

from cleave import _mistakes
from cleave.torch import W4A16Linear, W8A8Linear

__all__ = ["CleaveW4A16Config", "CleaveW8A8Config"]


@dataclass
class CleaveW8A8Config(AOBaseConfig):
    """Makes nn.Linear layers `cleave.torch.W8A8Linear`, whose arguments these are.

    dtype: "int8" or "float8_e4m3fn", of weights and activations. activation: "dynamic", or the scale of all of them.
    granularity: what shares a scale of the weight, "row", "block_1x128" or "block_128x128". use_fast_accum: for
    float8_e4m3fn. For inference; a layer of a class derived from nn.Linear is a TypeError: leave it out by filter_fn.
    """

    dtype: str = "int8"
    activation: str | float = "dynamic"
    granularity: str = "row"
    use_fast_accum: bool = False


@dataclass
class CleaveW4A16Config(AOBaseConfig):
    """Makes nn.Linear layers `cleave.torch.W4A16Linear`, of weights in 4 bits, rounded to nearest.

    group_size: columns of a row that share a scale, as in `cleave.pack_weights`; None for 128. For inference; a layer
    of a class derived from nn.Linear is a TypeError: leave it out by filter_fn.
    """

    group_size: int | None = None


@register_quantize_module_handler(CleaveW8A8Config)
def _in_8_bits(module: nn.Module, config: CleaveW8A8Config) -> W8A8Linear:
    _check(module)
    return W8A8Linear.from_linear(
        module,
        config.dtype,
        config.activation,
        granularity=config.granularity,
        use_fast_accum=config.use_fast_accum,
    )


@register_quantize_module_handler(CleaveW4A16Config)
def _in_4_bits(module: nn.Module, config: CleaveW4A16Config) -> W4A16Linear:
    _check(module)
    return W4A16Linear.from_linear(module, config.group_size)


def _check(module: nn.Module) -> None:
    if type(module) is not nn.Linear:
        raise TypeError(f"module is {type(module).__name__}; nn.Linear is served: leave it out by filter_fn")


_mistakes.explain(sys.modules[__name__])
