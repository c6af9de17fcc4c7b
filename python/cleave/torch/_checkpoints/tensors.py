"""A checkpoint's tensors by layer, and which of them were taken."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .files import Files

_WEIGHT_SCALES = ("weight_scale", "weight_scale_inv")
_CODES = "qweight"  # AWQ and GPTQ: of a weight in 4 bits
_ACTIVATION_SCALES = ("input_scale", "activation_scale")


class Tensors:
    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> torch.Size:
        """Without reading the tensor."""
        tensors = self._tensors
        return tensors.shape(name) if isinstance(tensors, Files) else tensors[name].shape

    def unused(self) -> list[str]:
        return [name for name in self._tensors if name not in self._taken]

    def is_quantized(self, layer: str) -> bool:
        return any(f"{layer}.{name}" in self for name in (*_WEIGHT_SCALES, _CODES))

    def has_weight(self, layer: str) -> bool:
        return any(f"{layer}.{name}" in self for name in ("weight", _CODES, "weight_packed"))

    def take(self, name: str) -> Tensor:
        self.mark(name)
        return self._tensors[name]

    def mark(self, name: str) -> None:
        """As taken: it is another name of a tensor that was."""
        self._taken.add(name)

    def weight(self, layer: str, dtype: torch.dtype) -> Tensor:
        weight = self.take(f"{layer}.weight")
        if weight.dtype != dtype:
            raise ValueError(f"{layer}.weight is {weight.dtype}, but quantization_config says {dtype}; mend that")
        return weight

    def weight_scale(self, layer: str) -> Tensor:
        return self._scale(layer, _WEIGHT_SCALES)

    def activation_scale(self, layer: str) -> Tensor:
        return self._scale(layer, _ACTIVATION_SCALES)

    def _scale(self, layer: str, names: tuple[str, ...]) -> Tensor:
        found = [f"{layer}.{name}" for name in names if f"{layer}.{name}" in self]
        if not found:
            raise ValueError(f"the checkpoint has no {layer}.{names[0]}, which its quantization_config asks for")
        scale = self.take(found[0])
        # Bytes are exponents: UE8M0 in files of before torch had a type for it.
        return (scale.float() - 127).exp2() if scale.dtype == torch.uint8 else scale.float()
