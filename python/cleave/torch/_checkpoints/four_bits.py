"""Weights of 4 bits as checkpoints have them, layer by layer, into packed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

import cleave

from ..._weights.experts import stacked
from ..._weights.layout import inverse
from .tensors import Tensors

# Brings a tensor to where the layer is.
Place = Callable[[Tensor], Tensor]


class Codes(NamedTuple):
    """codes: uint8 [N, K]. scales, and zeros if there are any (uint8): [groups, N]. g_idx: each column's group.
    global_scale: [1], or [N]."""

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    g_idx: Tensor | None = None
    global_scale: Tensor | None = None

    def zeros_are_8(self) -> bool:
        """As those of most checkpoints are, where they cost nothing if there are none."""
        return self.zeros is not None and bool((self.zeros == 8).all())

    def without_zeros(self) -> Codes:
        return self._replace(zeros=None)

    def scaled_by_rows(self) -> Codes:
        assert self.global_scale is not None
        return self._replace(global_scale=self.global_scale.expand(len(self.codes)))


def one_above_other(parts: list[Codes]) -> Codes:
    """The weights of several layers of the same inputs as one."""
    first = parts[0]
    zeros = None if first.zeros is None else torch.cat([part.zeros for part in parts], 1)
    codes, scales = torch.cat([part.codes for part in parts]), torch.cat([part.scales for part in parts], 1)
    together = Codes(codes, scales, zeros, first.g_idx, first.global_scale)
    if all(part.global_scale == first.global_scale for part in parts):  # or None
        return together
    return together._replace(global_scale=torch.cat([part.scaled_by_rows().global_scale for part in parts]))


class FourBits(NamedTuple):
    """How a checkpoint has a layer's weight in 4 bits.

    storage: one of _STORAGES, by which its tensors are called and codes follow each other; or "blocks", which
    `BlockExperts` reads. activation_dtype: to which activations are quantised, token by token; None: they stay.
    group_size: -1 for whole rows. act_order: columns belong to groups as a g_idx says. zero_less: what is taken off
    zero points before they are stored.
    """

    storage: str
    group_size: int
    act_order: bool = False
    zero_less: int = 0
    format: str = "int4"
    activation_dtype: torch.dtype | None = None

    def required(self, layer: str) -> list[str]:
        """The tensors without which there is no weight."""
        return [f"{layer}.{name}" for name in _STORAGES[self.storage].required]

    def check(self, tensors: Tensors, layer: str) -> None:
        """ValueError where columns are in act-order and nothing says in which."""
        if self.act_order and f"{layer}.{self._g_idx}" not in tensors:
            raise self._lacks_g_idx(layer)

    def packed(
        self, tensors: Tensors, layer: str, shape: torch.Size, place: Place, dtype: torch.dtype | None
    ) -> cleave.PackedWeights:
        """The weight, [N, K] of `shape`, where `place` brings its tensors; scales of `dtype`, or of their own."""
        found = self._read(tensors, layer, place)
        return self.pack(layer, found.without_zeros() if found.zeros_are_8() else found, shape, dtype)

    def packed_experts(
        self, tensors: Tensors, layers: list[list[str]], shape: torch.Size, place: Place, dtype: torch.dtype | None
    ) -> cleave.PackedWeights:
        """As `packed`, stacked: each expert's layers lie one above the other, [N, K] of `shape` together."""
        experts = [one_above_other([self._read(tensors, name, place) for name in names]) for names in layers]
        if all(found.zeros_are_8() for found in experts):
            experts = [found.without_zeros() for found in experts]
        if any(found.global_scale is not None and len(found.global_scale) > 1 for found in experts):
            experts = [found.scaled_by_rows() for found in experts]
        pairs = zip(layers, experts, strict=True)
        return stacked([self.pack(names[0], found, shape, dtype) for names, found in pairs])

    def _read(self, tensors: Tensors, layer: str, place: Place) -> Codes:
        found = _STORAGES[self.storage].read(self, lambda name: place(tensors.take(f"{layer}.{name}")), layer, tensors)
        if self.act_order and found.g_idx is None:
            raise self._lacks_g_idx(layer)
        return found

    def pack(self, layer: str, found: Codes, shape: torch.Size, dtype: torch.dtype | None) -> cleave.PackedWeights:
        """What was read of that layer, [N, K] of `shape`; errors name it."""
        if found.codes.shape != shape:
            raise ValueError(f"{layer}'s codes are {list(found.codes.shape)}; the model's weight is {list(shape)}")
        keeps = dtype is None or self.format != "int4"
        scales = found.scales if keeps else found.scales.to(dtype)
        try:
            return cleave.pack_weights(
                found.codes,
                self.group_size,
                self.format,
                scales=scales,
                zeros=found.zeros,
                g_idx=found.g_idx,
                global_scale=found.global_scale,
            )
        except (TypeError, ValueError) as error:
            raise type(error)(f"{layer}: {error}") from error

    @property
    def _g_idx(self) -> str:
        return "weight_g_idx" if self.storage == "compressed-tensors" else "g_idx"

    def _lacks_g_idx(self, layer: str) -> ValueError:
        return ValueError(
            f"the checkpoint has no {layer}.{self._g_idx}, but quantization_config says that columns are in act-order; "
            "without it their groups are unknown: quantise the model anew"
        )


# Reads a tensor of the layer.
Read = Callable[[str], Tensor]


def _optional(read: Read, layer: str, tensors: Tensors, name: str) -> Tensor | None:
    return read(name) if f"{layer}.{name}" in tensors else None


def _compressed(bits: FourBits, read: Read, layer: str, tensors: Tensors) -> Codes:
    """weight_packed [N, K / 8], zero points [N / 8, groups]: both of values of -8 to 7, stored plus 8."""
    codes, scale = nibbles(read("weight_packed")), read("weight_scale")
    shape = _optional(read, layer, tensors, "weight_shape")
    rows, columns = codes.shape if shape is None else shape.tolist()
    zeros = _optional(read, layer, tensors, "weight_zero_point")
    g_idx = _optional(read, layer, tensors, "weight_g_idx")
    if g_idx is not None and bool((g_idx < 0).all()):
        g_idx = None  # there is a place for one, which was not filled
    scale = scale.reshape(1, 1).expand(rows, 1) if scale.numel() == 1 else scale
    return Codes(codes[:rows, :columns], scale.T, None if zeros is None else nibbles(zeros.T)[:, :rows], g_idx)


# AWQ has nibble i of a word hold the column that is number _AWQ_COLUMNS[i] of its eight; its inverse.
_AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
_AWQ_NIBBLES = inverse(_AWQ_COLUMNS)


def _awq(bits: FourBits, read: Read, layer: str, tensors: Tensors) -> Codes:
    """qweight [K, N / 8], qzeros [groups, N / 8]."""

    def outputs(words: Tensor) -> Tensor:
        return nibbles(words).unflatten(1, (-1, 8))[:, :, _AWQ_NIBBLES].flatten(1)

    zeros = _optional(read, layer, tensors, "qzeros")
    return Codes(outputs(read("qweight")).T, read("scales"), None if zeros is None else outputs(zeros))


def _gptq(bits: FourBits, read: Read, layer: str, tensors: Tensors) -> Codes:
    """qweight [K / 8, N], qzeros [groups, N / 8], which wrap around where something is taken off them."""
    zeros = _optional(read, layer, tensors, "qzeros")
    if zeros is not None:
        zeros = nibbles(zeros) + bits.zero_less & 15
    g_idx = _optional(read, layer, tensors, "g_idx")
    return Codes(nibbles(read("qweight").T), read("scales"), zeros, g_idx)


def _nvfp4(bits: FourBits, read: Read, layer: str, tensors: Tensors) -> Codes:
    """weight_packed [N, K / 2], weight_scale [N, groups], weight_global_scale [1]: what scales were multiplied by."""
    divisor = read("weight_global_scale").float().reshape(1)
    return Codes(nibbles(read("weight_packed")), read("weight_scale").T, global_scale=1 / divisor)


def _modelopt(bits: FourBits, read: Read, layer: str, tensors: Tensors) -> Codes:
    """weight [N, K / 2], weight_scale [N, groups], weight_scale_2 []: what scales are to be multiplied by."""
    factor = read("weight_scale_2").float().reshape(1)
    return Codes(nibbles(read("weight")), read("weight_scale").T, global_scale=factor)


class _Storage(NamedTuple):
    read: Callable[[FourBits, Read, str, Tensors], Codes]
    required: tuple[str, ...]


_STORAGES = {
    "compressed-tensors": _Storage(_compressed, ("weight_packed", "weight_scale")),
    "awq": _Storage(_awq, ("qweight", "scales")),
    "gptq": _Storage(_gptq, ("qweight", "scales")),
    "nvfp4-pack-quantized": _Storage(_nvfp4, ("weight_packed", "weight_scale", "weight_global_scale")),
    "modelopt": _Storage(_modelopt, ("weight", "weight_scale", "weight_scale_2")),
}


def nibbles(words: Tensor) -> Tensor:
    """The codes of words of any size, two a byte along the last dimension, lowest bits first."""
    parts = words.contiguous().view(torch.uint8)
    return torch.stack((parts & 15, parts >> 4), -1).flatten(-2)
