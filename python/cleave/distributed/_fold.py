"""The sum of the ranks' partial results, in the order of the ranks, and what is done to it once: the fixup of split-K
whose outer slices are ranks. By a kernel of its own (include/cleave/fold.h), or in the epilogue of this rank's product,
where the others' results are there before it; the same bits by either."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._epilogue.activations import GATED
from .._epilogue.inputs import matrix, row
from .._epilogue.value import Trace, Value

MOST_FOLDED = 16  # partial results of one launch


def fold(
    partials: list[Tensor],
    out_dtype: torch.dtype,
    bias: Tensor | None = None,
    c: Tensor | None = None,
    activation: str = "none",
    scale_d: Tensor | None = None,
    *,
    out: Tensor | None = None,
    most_rows: int | None = None,
    group: Any = None,
    call: str = "",
    scales: tuple[Tensor | None, Tensor | None] = (None, None),
    scale_out: Tensor | None = None,
    use_ue8m0: bool = False,
) -> Tensor:
    """activation(((p0 + p1) + p2 ...) + c + bias) / scale_d, in float32 up to D's rounding.

    partials: [M, N] of each rank. bias: [N]. c: [M, N]. scale_d: one element. scale_out: where D's scales go, which are
    found for each 128 columns, with use_ue8m0 as powers of two. group: whose staging the partial results are in; the
    ranks meet first, in what they call `call`, and each says how many rows any of them has at most. More than 16 are
    added in several launches, whose sums between are float32: the same bits. scales: what the exact sum of int32
    partial results is multiplied by, one for all or one for each row, and the same for columns. out: where the result
    goes.
    """
    while len(partials) > MOST_FOLDED:
        total = fold(partials[:MOST_FOLDED], torch.float32)
        partials = [total, *(part.float() for part in partials[MOST_FOLDED:])]
    if out is None:
        rows, columns = partials[0].shape
        out = partials[0].new_empty(rows, columns // 2 if activation in GATED else columns, dtype=out_dtype)
    most = out.shape[0] if most_rows is None else most_rows
    given = bias, c, scale_d, activation, most, group, call, False, None, False, scale_out, use_ue8m0
    _core.fold(partials, out, *scales, *given)
    return out


def is_inside(rows: int, columns: int, partial_bytes: int, size: int) -> bool:
    """Whether products on GPUs may add up themselves what all ranks have, which each rank's does if it can; or
    CLEAVE_SUMS_IN_PRODUCTS=0 says, on all ranks, that none does."""
    given = os.environ.get("CLEAVE_SUMS_IN_PRODUCTS", "")
    if given not in ("", "0", "1"):
        raise ValueError(f"CLEAVE_SUMS_IN_PRODUCTS is {given!r}; it must be 0 or 1")
    return given != "0" and _core.fits_strips(size, rows, columns, partial_bytes)


_MOST_INPUTS = 8  # of an epilogue function


def is_fused(a: Tensor, size: int, c: Tensor | None, bias: Tensor | None, activation: str, scale_d: Any) -> bool:
    """Whether `onto` has the bits of `fold`: it does for a sum that nothing is done to but adding, of operands that
    both interfaces multiply alike."""
    inputs = size - 1 + (c is not None) + (bias is not None)
    return activation == "none" and scale_d is None and a.itemsize <= 2 and inputs <= _MOST_INPUTS


@lru_cache(maxsize=256)
def onto(rank: int, size: int, dtype: torch.dtype, has_c: bool, has_bias: bool, also: int) -> _core.EpilogueFunction:
    """The epilogue of this rank's product of its own rows: rounded as the ranks' partial results are, added up with the
    others', which are its inputs, in the order of the ranks, + c + bias. also: in how many places beside D that is
    stored."""
    inputs = {f"p{r}": matrix for r in range(size) if r != rank}
    inputs |= {"c": matrix} if has_c else {}
    inputs |= {"bias": row} if has_bias else {}

    def add(acc: Value, **values: Value) -> Value:
        own = acc.to(dtype)
        total = own if rank == 0 else values["p0"]
        for r in range(1, size):
            total = total + (own if r == rank else values[f"p{r}"])
        for name in ("c", "bias"):
            total = total + values[name] if name in values else total
        return total

    trace = Trace("fold", inputs)
    values = {name: Value(trace, name) for name in inputs}
    places = ["d", *(f"also{i}" for i in range(also))]
    return trace.run(add, [Value(trace, "acc")], values, lambda value: dict.fromkeys(places, value))
