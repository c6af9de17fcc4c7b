"""The sum of the ranks' partial results, in the order of the ranks, and what is done to it once: the fixup of split-K
whose outer slices are ranks (include/cleave/fold.h)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _core

ACTIVATIONS = tuple(name for name in _core.choices["activation"] if name != "swiglu")  # whose gates are no sum

_MOST = 16  # partial results of one launch


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
) -> Tensor:
    """activation(((p0 + p1) + p2 ...) + c + bias) / scale_d, in float32 up to D's rounding.

    partials: [M, N] of each rank. bias: [N]. c: [M, N]. scale_d: one element. group: whose staging the partial results
    are in; the ranks meet first, in what they call `call`, and each says how many rows any of them has at most. More
    than 16 are added in several launches, whose sums between are float32: the same bits. out: where the result goes.
    """
    while len(partials) > _MOST:
        total = fold(partials[:_MOST], torch.float32)
        partials = [total, *(part.float() for part in partials[_MOST:])]
    if out is None:
        out = torch.empty_like(partials[0], dtype=out_dtype, memory_format=torch.contiguous_format)
    most = out.shape[0] if most_rows is None else most_rows
    _core.fold(partials, out, bias, c, scale_d, activation, most, group, call, None)
    return out
