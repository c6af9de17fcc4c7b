"""torchao's quantize_ with Cleave's layers.

from torchao.quantization import quantize_
from cleave.torchao import CleaveW8A8Config
quantize_(model, CleaveW8A8Config("float8_e4m3fn"), filter_fn)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from torchao.core.config import AOBaseConfig
from torchao.quantization.transform_module import register_quantize_module_handler

from cleave.torch import W8A8Linear

__all__ = ["CleaveW8A8Config"]


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


@register_quantize_module_handler(CleaveW8A8Config)
def _quantize(module: nn.Module, config: CleaveW8A8Config) -> W8A8Linear:
    if type(module) is not nn.Linear:
        raise TypeError(f"module is {type(module).__name__}; nn.Linear is served: leave it out by filter_fn")
    return W8A8Linear.from_linear(
        module,
        config.dtype,
        config.activation,
        granularity=config.granularity,
        use_fast_accum=config.use_fast_accum,
    )
