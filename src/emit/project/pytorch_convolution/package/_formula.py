"""The convolution by PyTorch's own operators: the shape of the result, and the gradients of the operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _operation as fixed

OPERANDS = 3 if fixed.KIND == "dgrad" else 2  # the first arguments, the size of images among them
BIAS_SHAPE = (-1, *[1] * len(fixed.TAPS))
# PyTorch pads both sides alike: what differs is padded before.
_EVEN = all(begin == end for begin, end in fixed.PADDING)
_PADDING = [begin if _EVEN else 0 for begin, _ in fixed.PADDING]
_GEOMETRY = (fixed.STRIDE, _PADDING, fixed.DILATION, False, [0] * len(_PADDING), fixed.GROUPS)


def shapes(*call: Any) -> dict[str, tuple[Any, ...]]:
    """Those of the result, "matrix", and of what it may be reduced to."""
    outer, channels, *rest = shape = _SHAPES[fixed.KIND](*call)
    lines = {"row": (channels,), "column": (outer, 1, *rest)}
    if fixed.KIND == "wgrad":
        lines = {"row": (1, channels, *rest), "column": (outer,)}
    return {"matrix": tuple(shape), "scalar": ()} | lines


def new(like: Tensor, shape: tuple[Any, ...], dtype: torch.dtype) -> Tensor:
    made = like.new_empty(shape, dtype=dtype)
    return made.to(memory_format=fixed.ORDER) if made.dim() > 2 else made


def _fprop(input: Tensor, *_: Any) -> Sequence[Any]:
    axes = zip(input.shape[2:], fixed.TAPS, fixed.STRIDE, fixed.PADDING, fixed.DILATION, strict=True)
    outputs = [
        (size + sum(padding) - (taps - 1) * dilation - 1) // stride + 1
        for size, taps, stride, padding, dilation in axes
    ]
    return input.shape[0], fixed.FILTERS, *outputs


def _dgrad(input_size: Sequence[Any], *_: Any) -> Sequence[Any]:
    return input_size


def _wgrad(*_: Any) -> Sequence[Any]:
    return fixed.FILTERS, fixed.CHANNELS // fixed.GROUPS, *fixed.TAPS


_SHAPES = {"fprop": _fprop, "dgrad": _dgrad, "wgrad": _wgrad}


def _padded(x: Tensor) -> Tensor:
    """With the zeros that PyTorch does not add."""
    if _EVEN:
        return x
    ends = [end for padding in reversed(fixed.PADDING) for end in padding]
    return torch.nn.functional.pad(x, ends)


def _conv(x: Tensor, w: Tensor) -> Tensor:
    return torch.ops.aten.convolution(_padded(x), w, None, *_GEOMETRY)


def _gradients(x: Tensor, w: Tensor, y: Tensor, of_x: bool, of_w: bool) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of sum(y * conv(x, w)) by x and w."""
    padded, wanted = _padded(x), (of_x, of_w, False)
    grads = torch.ops.aten.convolution_backward(y, padded, w, None, *_GEOMETRY, wanted)
    grad_x = grads[0]
    for axis, (begin, _) in enumerate([] if _EVEN or not of_x else fixed.PADDING, 2):
        grad_x = grad_x.narrow(axis, begin, x.shape[axis])
    return grad_x if of_x else None, grads[1] if of_w else None


def product(first: Tensor, second: Tensor, *size: Sequence[int]) -> Tensor:
    """`size`: that of images whose gradient is made."""
    if fixed.KIND == "fprop":
        return _conv(first, second)
    if fixed.KIND == "wgrad":
        filters = first.new_empty(fixed.FILTERS, fixed.CHANNELS // fixed.GROUPS, *fixed.TAPS)
        return _gradients(first, filters.to(memory_format=fixed.ORDER), second, False, True)[1]
    images = first.new_empty(*size).to(memory_format=fixed.ORDER)
    return _gradients(images, first, second, True, False)[0]


def spread(x: Tensor, shape: str) -> Tensor:
    """An input of the epilogue function such that it broadcasts against the result: `shape` says which one it is."""
    if x.dim() != 1 or shape == "scalar":
        return x
    return x.view(-1, *[1] * (len(fixed.TAPS) + (fixed.KIND == "wgrad")))


def gradients(
    first: Tensor, second: Tensor, grad: Tensor, of_first: bool, of_second: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Those of the two operands, as far as they are wanted."""
    if fixed.KIND == "fprop":
        return _gradients(first, second, grad, of_first, of_second)
    if fixed.KIND == "dgrad":
        _, of_weight = _gradients(grad, first, second, False, of_first)
        return of_weight, _conv(grad, first) if of_second else None
    of_input, _ = _gradients(first, grad, second, of_first, False)
    return of_input, _conv(first, grad) if of_second else None
