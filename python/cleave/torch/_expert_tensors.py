"""A checkpoint's experts, one by one, as transformers keeps them: stacked, gates and ups in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import cleave

from ._formats import Scheme
from ._four_bits import FourBits, Place
from ._scales import BLOCK, shaped_scale
from ._tensors import Tensors
from .experts import W8A8Experts
from .mixed_experts import W4A16Experts

# What checkpoints call an expert's gate, up and down.
_NAMES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))

STACKED = ("gate_up_proj", "down_proj")

# Reads a tensor of the layer of that name.
Read = Callable[[str], Tensor]


def are_experts(module: nn.Module) -> bool:
    return all(_dimensions(module, name) == 3 for name in STACKED)


def _dimensions(module: nn.Module, name: str) -> int:
    parameter = module._parameters.get(name)
    return 0 if parameter is None else parameter.dim()


def is_swiglu(experts: Any) -> bool:
    """Whether what comes between the two products is silu(gate) * up, the gates before the ups."""
    gate = getattr(experts, "_apply_gate", None)
    activation = getattr(experts, "act_fn", None)
    return (
        (gate is None or gate.__name__ == "_default_apply_gate")
        and (activation is nn.functional.silu or type(activation).__name__ in ("SiLU", "SiLUActivation"))
        and getattr(experts, "is_concatenated", True)
    )


class ExpertTensors:
    """What the checkpoint has of `experts`, a module of that name."""

    def __init__(self, name: str, experts: nn.Module, tensors: Tensors) -> None:
        count, self._features, self._hidden = experts.down_proj.shape
        self._experts = [f"{name}.{expert}" for expert in range(count)]
        first = f"{name}.0."
        self._parts = next((parts for parts in _NAMES if tensors.has_weight(first + parts[0])), _NAMES[0])

    def layers(self) -> list[str]:
        return [f"{expert}.{part}" for expert in self._experts for part in self._parts]

    def stacked(self, parameter: str, read: Read) -> Tensor:
        """The parameter, gate_up_proj or down_proj; `read` reads a layer."""
        gate, up, down = self._parts
        parts = (down,) if parameter == "down_proj" else (gate, up)
        return torch.stack([torch.cat([read(f"{expert}.{part}") for part in parts]) for expert in self._experts])

    def quantized(self, tensors: Tensors, scheme: Scheme, place: Callable[[Tensor], Tensor]) -> W8A8Experts:
        # Where a block would have gates and ups, each row has scales of its own.
        by_rows = scheme.granularity == "block_128x128" and self._hidden % BLOCK != 0

        def weight(layer: str) -> Tensor:
            return tensors.weight(layer, scheme.dtype)

        def scale(layer: str) -> Tensor:
            is_down = layer.endswith(f".{self._parts[2]}")
            shape = (self._features, self._hidden) if is_down else (self._hidden, self._features)
            found = shaped_scale(tensors.weight_scale(layer), scheme.granularity, *shape)
            return found.repeat_interleave(BLOCK, 0)[: shape[0]] if by_rows else found

        found = [place(self.stacked(parameter, read)) for parameter in STACKED for read in (weight, scale)]
        return W8A8Experts.from_quantized(*found, granularity="block_1x128" if by_rows else scheme.granularity)

    def four_bits(self, tensors: Tensors, scheme: FourBits, place: Place, dtype: torch.dtype | None) -> W4A16Experts:
        """The experts, of weights in 4 bits; scales of `dtype`, or of their own."""
        gate, up, down = self._parts

        def packed(parts: tuple[str, ...], shape: tuple[int, int]) -> cleave.PackedWeights:
            of_experts = [[f"{expert}.{part}" for part in parts] for expert in self._experts]
            return scheme.packed_experts(tensors, of_experts, torch.Size(shape), place, dtype)

        return W4A16Experts.from_packed(
            packed((gate, up), (2 * self._hidden, self._features)), packed((down,), (self._features, self._hidden))
        )
