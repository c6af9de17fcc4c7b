"""What the convolutions return, without computing it: new tensors, their channels adjacent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._fake import declare, default_dtype


def register() -> None:
    declare(
        {
            "conv": lambda call: _new(call.input, _output_size(call), call.out_dtype),
            "scaled_conv": lambda call: _new(
                call.input, _output_size(call), call.out_dtype or default_dtype(call.input, call.scale_a)
            ),
            "conv_dgrad": lambda call: _new(call.grad_output, call.input_size, call.out_dtype),
            "conv_wgrad": lambda call: _new(call.input, call.weight_size, call.out_dtype),
        }
    )


def _output_size(call: Any) -> list[Any]:
    input_size, weight_size = call.input.shape, call.weight.shape
    axes = len(input_size) - 2
    torch._check(
        axes in (1, 2, 3) and len(weight_size) == len(input_size),
        lambda: (
            f"input is {tuple(input_size)} and weight is {tuple(weight_size)}; both must have 3 dimensions, 4, or 5"
        ),
    )
    before, after = _pads(call.padding, axes)
    steps, gaps = _per_axis(call.stride, axes), _per_axis(call.dilation, axes)
    sizes = [
        (size + before[i] + after[i] - gaps[i] * (taps - 1) - 1) // steps[i] + 1
        for i, (size, taps) in enumerate(zip(input_size[2:], weight_size[2:], strict=True))
    ]
    return [input_size[0], weight_size[0], *sizes]


def _per_axis(values: Sequence[int], axes: int) -> list[int]:
    return [*values] * axes if len(values) == 1 else [*values]


def _pads(padding: Sequence[int], axes: int) -> tuple[list[int], list[int]]:
    """Before and after each axis."""
    if len(padding) == 2 * axes:
        return [*padding[:axes]], [*padding[axes:]]
    return (_per_axis(padding, axes),) * 2


def _new(like: Tensor, size: Sequence[int], dtype: torch.dtype | None) -> Tensor:
    images, channels, *axes = size
    made = like.new_empty((images, *axes, channels), dtype=dtype or default_dtype(like))
    return made.movedim(-1, 1)
