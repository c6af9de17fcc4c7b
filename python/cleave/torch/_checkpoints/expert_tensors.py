"""A checkpoint's experts, one by one, as transformers keeps them: stacked, gates and ups in one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import cleave

from .._packed_bytes import INT4_SCALES
from .._scales import BLOCK, shaped_scale
from ..experts import W8A8Experts
from ..mixed_bytes_experts import W4A8Experts
from ..mixed_experts import W4A16Experts
from .expert_modules import STACKED, gate_of, has_bias, is_interleaved, is_transposed, sizes_of
from .formats import Scheme
from .four_bits import FourBits, Place
from .tensors import Tensors

# What checkpoints call an expert's gate, up and down.
_NAMES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))

# What an expert's layer is, for formats that name classes.
_A_LINEAR = nn.Linear(1, 1, device="meta")

# Reads a tensor of the layer of that name.
Read = Callable[[str], Tensor]


class ExpertTensors:
    """What the checkpoint has of `experts`, a module of that name."""

    def __init__(self, name: str, experts: nn.Module, tensors: Tensors) -> None:
        self._name = name
        self._module = experts
        self._tensors = tensors
        count, self._features, self._hidden = sizes_of(experts)
        self._experts = [f"{name}.{expert}" for expert in range(count)]
        first = f"{name}.0."
        self._parts = next((parts for parts in _NAMES if tensors.has_weight(first + parts[0])), _NAMES[0])

    def is_quantized(self) -> bool:
        return self._tensors.is_quantized(self._layers()[0])

    def example(self) -> tuple[str, nn.Module]:
        """A layer, for formats that name layers and classes."""
        return self._layers()[0], _A_LINEAR

    def required(self, scheme: Scheme | FourBits) -> list[str]:
        if isinstance(scheme, FourBits):
            return [name for layer in self._layers() for name in scheme.required(layer)]
        return self._weights()

    def check(self, scheme: Scheme | FourBits) -> None:
        """TypeError and ValueError, naming the experts, for what is not served."""
        name, experts = self._name, self._module
        if has_bias(experts) or is_transposed(experts) or is_interleaved(experts):
            raise TypeError(
                f"{name} is {type(experts).__name__}, but the checkpoint has experts one by one, which are served "
                "without biases, of weights [experts, outputs, inputs] with all gates before all ups"
            )
        if isinstance(scheme, FourBits):
            if scheme.act_order:
                raise ValueError(f"{name} has columns in act-order; experts without it are served")
            scheme.check(self._tensors, self._layers()[0])
        elif scheme.static:
            raise ValueError(f"{name} has activations with given scales; experts with dynamic ones are served")

    def reader(self, parameter: str) -> Callable[[], Tensor] | None:
        """What reads gate_up_proj or down_proj in floats; None for another parameter, or if the checkpoint lacks it."""
        if parameter not in STACKED or any(name not in self._tensors for name in self._weights()):
            return None
        return lambda: self._stacked(parameter, lambda layer: self._tensors.take(f"{layer}.weight"))

    def made(
        self, scheme: Scheme | FourBits, place: Place, dtype: torch.dtype | None
    ) -> W8A8Experts | W4A16Experts | W4A8Experts:
        """The experts, where `place` brings tensors; scales in 4 bits of `dtype`, or of their own."""
        return self._four_bits(scheme, place, dtype) if isinstance(scheme, FourBits) else self._eight(scheme, place)

    def _layers(self) -> list[str]:
        return [f"{expert}.{part}" for expert in self._experts for part in self._parts]

    def _weights(self) -> list[str]:
        return [f"{layer}.weight" for layer in self._layers()]

    def _stacked(self, parameter: str, read: Read) -> Tensor:
        gate, up, down = self._parts
        parts = (down,) if parameter == "down_proj" else (gate, up)
        return torch.stack([torch.cat([read(f"{expert}.{part}") for part in parts]) for expert in self._experts])

    def _eight(self, scheme: Scheme, place: Place) -> W8A8Experts:
        # Where a block would have gates and ups, each row has scales of its own.
        by_rows = scheme.granularity == "block_128x128" and self._hidden % BLOCK != 0

        def weight(layer: str) -> Tensor:
            return self._tensors.weight(layer, scheme.dtype)

        def scale(layer: str) -> Tensor:
            is_down = layer.endswith(f".{self._parts[2]}")
            shape = (self._features, self._hidden) if is_down else (self._hidden, self._features)
            found = shaped_scale(self._tensors.weight_scale(layer), scheme.granularity, *shape)
            return found.repeat_interleave(BLOCK, 0)[: shape[0]] if by_rows else found

        found = [place(self._stacked(parameter, read)) for parameter in STACKED for read in (weight, scale)]
        granularity = "block_1x128" if by_rows else scheme.granularity
        return W8A8Experts.from_quantized(*found, granularity=granularity, gate=gate_of(self._module))

    def _four_bits(self, scheme: FourBits, place: Place, dtype: torch.dtype | None) -> W4A16Experts | W4A8Experts:
        gate, up, down = self._parts
        if scheme.activation_dtype is not None:
            dtype = INT4_SCALES

        def packed(parts: tuple[str, ...], shape: tuple[int, int]) -> cleave.PackedWeights:
            of_experts = [[f"{expert}.{part}" for part in parts] for expert in self._experts]
            return scheme.packed_experts(self._tensors, of_experts, torch.Size(shape), place, dtype)

        both = packed((gate, up), (2 * self._hidden, self._features)), packed((down,), (self._features, self._hidden))
        if scheme.activation_dtype is None:
            return W4A16Experts.from_packed(*both, gate=gate_of(self._module))
        return W4A8Experts.from_packed(*both, activation_dtype=scheme.activation_dtype, gate=gate_of(self._module))
