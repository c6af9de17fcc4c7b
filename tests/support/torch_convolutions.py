"""Convolutions of many kinds, and torch's results, for the tests on the CPU and on a GPU."""

from __future__ import annotations

from typing import Any

import torch

functional = torch.nn.functional

_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}

# Sizes of x and w, then stride, padding, dilation and groups.
CASES = {
    "3x3": ((2, 8, 9, 7), (6, 8, 3, 3), (1,), (1,), (1,), 1),
    "strided": ((2, 8, 9, 7), (6, 8, 3, 3), (2, 3), (1, 2), (1,), 1),
    "stride beyond filter": ((2, 8, 9, 7), (6, 8, 1, 2), (3,), (0,), (1,), 1),
    "padding beyond filter": ((1, 4, 1, 1), (6, 4, 2, 2), (2,), (3,), (1,), 1),
    "asymmetric": ((2, 8, 9, 7), (6, 8, 2, 2), (2,), (1, 0, 0, 2), (1,), 1),
    "dilated": ((2, 8, 9, 12), (6, 8, 3, 3), (2,), (2,), (3, 2), 1),
    "groups": ((2, 8, 9, 7), (6, 4, 3, 3), (2,), (1,), (1,), 2),
    "depthwise": ((2, 8, 9, 7), (8, 1, 3, 3), (2,), (1,), (1,), 8),
    "1x1": ((2, 8, 9, 7), (6, 8, 1, 1), (1,), (0,), (1,), 1),
    "one channel": ((2, 1, 9, 7), (6, 1, 3, 3), (2,), (1,), (1,), 1),
    "no images": ((0, 8, 9, 7), (6, 8, 3, 3), (2,), (1,), (1,), 1),
    "one axis": ((2, 8, 19), (6, 8, 4), (2,), (1,), (2,), 1),
    "three axes": ((2, 4, 5, 6, 7), (6, 4, 2, 3, 1), (1, 2, 3), (1, 1, 0), (1,), 1),
}


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def integers(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    """Small ones, whose sums are exact."""
    return channels_last(torch.randint(-3, 4, shape, device=device).to(dtype))


def _per_axis(values: tuple[int, ...], axes: int) -> tuple[int, ...]:
    return values * axes if len(values) == 1 else values


def reference(x: torch.Tensor, w: torch.Tensor, case: tuple[Any, ...]) -> torch.Tensor:
    """torch's, which pads alike at both ends only."""
    *_, stride, padding, dilation, groups = case
    axes = x.dim() - 2
    pads = padding if len(padding) == 2 * axes else 2 * _per_axis(padding, axes)
    pads = [pads[side * axes + axis] for axis in reversed(range(axes)) for side in (0, 1)]
    return _CONVOLUTIONS[axes](functional.pad(x, pads), w, None, stride, 0, dilation, groups)


def is_packed(x: torch.Tensor) -> bool:
    return x.movedim(1, -1).is_contiguous()
