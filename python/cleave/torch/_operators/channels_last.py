"""The order of memory that convolutions take: the channels of a pixel adjacent, image by image."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _dealt

# By the number of dimensions.
_REMEDIES = {
    3: "input.mT.contiguous().mT",
    4: "input.contiguous(memory_format=torch.channels_last)",
    5: "input.contiguous(memory_format=torch.channels_last_3d)",
}


def packed(x: Tensor) -> Tensor:
    """`x`, [n, channels, ...] of any rank, or a copy if that is not packed so."""
    if _dealt.is_dealt(x):  # whose strides are not those of what a rank has
        return _dealt.map_own(packed, x)
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def channels_last(x: Tensor) -> Tensor:
    """The same, but a slice of the channels of a wider tensor is left as it is."""
    if _dealt.is_dealt(x):
        return _dealt.map_own(channels_last, x)
    return x if _is_channels_last(x) else packed(x)


def check_channels_last(input: Tensor) -> None:
    """ValueError, saying what to do, for what `channels_last` would copy."""
    if not _is_channels_last(_dealt.own(input)):
        raise ValueError(
            f"input is {tuple(input.shape)} with strides {input.stride()}; the channels of a pixel "
            f"must be neighbours, and pixels at one distance, image by image. Pass "
            f"{_REMEDIES[input.dim()]}, or make the layer with convert=True"
        )


def _is_channels_last(x: Tensor) -> bool:
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return True
    channels = x.shape[1]
    if channels > 1 and x.stride(1) != 1:
        return False
    expected = None  # of the stride, from the dimensions within
    for dim in (*range(x.dim() - 1, 1, -1), 0):
        size, stride = x.shape[dim], x.stride(dim)
        if size == 1:
            continue
        if stride < channels if expected is None else stride != expected:
            return False
        expected = stride * size
    return True
