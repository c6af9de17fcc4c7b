"""The product by PyTorch's own operators: the shape of D, and the gradients of the operands."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _operation as fixed

OPERANDS = 2  # the first arguments
BIAS_SHAPE = (-1,) if fixed.BIAS == "row" else (-1, 1)


def shapes(a: Tensor, b: Tensor, *more: Any) -> dict[str, tuple[Any, ...]]:
    """Those of D, "matrix", and of what it may be reduced to.

    If the weight is packed, b is its codes, and `more` begins with its scales."""
    rows = a.shape[-2]
    columns = b.shape[-1] if fixed.WEIGHTS == "none" else more[0].shape[-1]
    if fixed.WEIGHTS == "none":
        torch._check(a.shape[-1] == b.shape[-2])
    if fixed.GATED:
        columns = columns // 2
    entries = _entries(a, b, *more)
    if entries:
        lines = {"column": (*entries, rows, 1), "row": (*entries, 1, columns), "scalar": (*entries, 1, 1)}
    else:
        of_rows, of_columns = b.shape[: fixed.GROUPING == "m"], a.shape[: fixed.GROUPING == "n"]  # groups
        lines = {"column": (*of_columns, rows), "row": (*of_rows, columns), "scalar": (*of_rows, *of_columns)}
    return {"matrix": (*entries, rows, columns)} | lines


def new(like: Tensor, shape: tuple[Any, ...], dtype: torch.dtype, order: str = "row") -> Tensor:
    """A tensor of such a shape; order: a matrix's."""
    if order == "row":
        return like.new_empty(shape, dtype=dtype)
    return like.new_empty((*shape[:-2], shape[-1], shape[-2]), dtype=dtype).mT


def _entries(a: Tensor, b: Tensor, *more: Any) -> tuple[int, ...]:
    """The leading dimensions of D."""
    if fixed.GROUPING == "none":
        return torch.broadcast_shapes(a.shape[:-2], b.shape[: -2 if fixed.WEIGHTS == "none" else -3])
    if fixed.GROUPING == "m" and fixed.BOUNDS == "counts":
        return a.shape[:-2]
    if fixed.GROUPING != "k":
        return ()
    bounds = more[0 if fixed.SCALING == "none" else 2]
    return (bounds.shape[0] - (fixed.BOUNDS == "indptr"),)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def spread(x: Tensor, shape: str) -> Tensor:
    """An input of the epilogue function such that it broadcasts against D: `shape` says which one it is."""
    return x.unsqueeze(1) if shape == "column" and x.dim() == 1 else x


def gradients(a: Tensor, b: Tensor, grad: Tensor, of_a: bool, of_b: bool) -> tuple[Tensor | None, Tensor | None]:
    """Those of a and b, as far as they are wanted."""
    return (
        (grad @ b.mT).sum_to_size(a.shape) if of_a else None,
        (a.mT @ grad).sum_to_size(b.shape) if of_b else None,
    )
