"""The product by PyTorch's own operators: the shape of D, and the gradients of the operands."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _operation as fixed

BIAS_SHAPE = (-1,) if fixed.BIAS == "row" else (-1, 1)


def result(a: Tensor, b: Tensor, *more: Any, **_: Any) -> Any:
    """What the operator returns, without computing it."""
    torch._check(a.shape[-1] == b.shape[-2])
    rows, columns = a.shape[-2], b.shape[-1]
    if fixed.ACTIVATION == "swiglu":
        columns = columns // 2
    shape = (*_entries(a, b, *more), rows, columns)
    if fixed.D_ORDER == "row":
        d = a.new_empty(shape, dtype=fixed.D_DTYPE)
    else:
        d = a.new_empty((*shape[:-2], columns, rows), dtype=fixed.D_DTYPE).mT
    return (d, a.new_empty(1, dtype=torch.float32)) if fixed.HAS_AMAX else d


def _entries(a: Tensor, b: Tensor, *more: Any) -> tuple[int, ...]:
    """The leading dimensions of D."""
    if fixed.GROUPING == "none":
        return torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if fixed.GROUPING == "m" and fixed.BOUNDS == "counts":
        return a.shape[:-2]
    if fixed.GROUPING != "k":
        return ()
    bounds = more[0 if fixed.SCALING == "none" else 2]
    return (bounds.shape[0] - (fixed.BOUNDS == "indptr"),)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def gradients(a: Tensor, b: Tensor, grad: Tensor, of_a: bool, of_b: bool) -> tuple[Tensor | None, Tensor | None]:
    """Those of a and b, as far as they are wanted."""
    return (
        (grad @ b.mT).sum_to_size(a.shape) if of_a else None,
        (a.mT @ grad).sum_to_size(b.shape) if of_b else None,
    )
