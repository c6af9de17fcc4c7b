"""What the convolutions return, without computing it: new tensors, their channels adjacent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .epilogue import outputs
from .fake import declare, default_dtype


def register() -> None:
    declare(
        {
            "conv": lambda call: _made(call, call.input, _output_size(call)),
            "scaled_conv": lambda call: _made(
                call, call.input, _output_size(call), default=default_dtype(call.input, call.scale_a)
            ),
            "conv_dgrad": lambda call: _made(call, call.grad_output, call.input_size),
            "conv_wgrad": lambda call: _made(call, call.input, call.weight_size, line=0),
        }
    )


def _made(call: Any, like: Tensor, size: Sequence[int], line: int = 1, default: torch.dtype | None = None) -> Any:
    """D, or what an epilogue function makes. line: the dimension of D that a line of inputs lies along."""
    if call.epilogue is None:
        return _new(like, size, call.out_dtype or default)
    (of_d, _), *others = outputs(call.epilogue)
    d = _new(like, size, call.out_dtype or of_d or default)
    return [d, *(_reduced(d, shape, line, dtype or d.dtype) for dtype, shape in others)]


def _reduced(d: Tensor, shape: str, line: int, dtype: torch.dtype) -> Tensor:
    """An output of D's shape, or of what D is reduced to."""
    if shape == "matrix":
        return _new(d, d.shape, dtype)
    if shape == "scalar":
        return d.new_empty((), dtype=dtype)
    if shape == ("row" if line == 1 else "column"):
        return d.new_empty(d.shape[line], dtype=dtype)
    return _new(d, [1 if i == line else size for i, size in enumerate(d.shape)], dtype)


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
