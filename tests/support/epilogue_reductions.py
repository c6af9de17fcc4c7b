"""Epilogue functions that reduce D, drawn, and what their outputs are, in float64, of the D that was stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import cleave

OVER = ("columns", "rows", "all")
REDUCTIONS = ("sum", "sum_of_squares", "absmax")


@cache
def drawn_reductions(chosen: tuple[tuple[str, str], ...]) -> cleave.Epilogue:
    """A function of a `scale`, whose outputs beside D are those reductions."""

    @cleave.epilogue
    def reducing(acc, scale: cleave.scalar):
        x = acc * scale + 0.25
        made = {f"r{i}": getattr(cleave, name)(x, over=over) for i, (name, over) in enumerate(chosen)}
        return cleave.outputs(d=x, **made)

    return reducing


# What each group has values of its own for.
OVER_GROUPS = {"grouped_rows": ("rows", "all"), "grouped_columns": ("columns", "all")}


def reduced(
    d: np.ndarray, reduction: str, over: str, operation: str, ranges: Sequence[tuple[int, int]] = ()
) -> np.ndarray:
    """`operation`: of epilogue_operations, which says what D's rows and columns are. What belongs to no group is 0.
    ranges: the rows (columns) of each group."""
    if over in OVER_GROUPS.get(operation, ()):
        cut = [d[slice(*r)] if operation == "grouped_rows" else d[:, slice(*r)] for r in ranges]
        return np.stack([reduced(part, reduction, over, "") for part in cut])
    x: Any = d.astype(np.float64)
    convolution = operation in ("forward_convolutions", "data_gradients", "filter_gradients")
    everything = tuple(range(x.ndim))
    if not convolution:
        axes = {"columns": (x.ndim - 1,), "rows": (x.ndim - 2,), "all": (x.ndim - 2, x.ndim - 1)}[over]
        keep = x.ndim == 3
    else:
        line = 0 if operation == "filter_gradients" else 1  # one value for each of these, or over these
        over_line = over == ("rows" if line == 0 else "columns")
        axes = everything if over == "all" else (line,) if over_line else tuple(i for i in everything if i != line)
        keep = over_line
    if reduction == "absmax":
        return np.abs(x).max(axis=axes, keepdims=keep, initial=0.0)
    return (x * x if reduction == "sum_of_squares" else x).sum(axis=axes, keepdims=keep)
