"""Several W8A8Linear layers of the same input as one product: their weights one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from .._scales import BLOCK
from ..linear import W8A8Linear

Stacked = TypeVar("Stacked", bound=W8A8Linear)

_BY_ROWS = ("weight", "weight_scale", "bias")  # buffers that are one above the other
_COMMON = ("activation_scale", "smooth")  # and those that all share


def why_apart(linears: Sequence[W8A8Linear]) -> str:
    """What keeps layers from being one product; "" if nothing does."""
    first = linears[0]
    equal = {
        "in_features": lambda each: each.in_features == first.in_features,
        "granularity": lambda each: each.granularity == first.granularity,
        "dtype": lambda each: each.weight.dtype == first.weight.dtype,
        "bias": lambda each: (each.bias is None) == (first.bias is None),
        "use_fast_accum": lambda each: each.use_fast_accum == first.use_fast_accum,
        "static_weights": lambda each: each.static_weights == first.static_weights,
        **{name: lambda each, name=name: same(getattr(each, name), getattr(first, name)) for name in _COMMON},
    }
    differ = [name for name, is_equal in equal.items() if not all(map(is_equal, linears))]
    if differ:
        return f"they differ in {', '.join(differ)}"
    if first.granularity == "block_128x128" and any(each.out_features % BLOCK for each in linears[:-1]):
        return f"their outputs are no multiples of {BLOCK}, so that a block would be of two of them"
    return ""


def stack(linears: Sequence[W8A8Linear], kind: type[Stacked]) -> Stacked:
    """One layer in the place of several that nothing keeps apart, which become parts of its memory."""
    first = linears[0]
    weight, weight_scale, bias = (
        None if getattr(first, name) is None else torch.cat([getattr(each, name) for each in linears])
        for name in _BY_ROWS
    )
    made = kind.from_quantized(
        weight,
        weight_scale,
        bias,
        first.activation_scale,
        granularity=first.granularity,
        smooth=first.smooth,
        use_fast_accum=first.use_fast_accum,
        static_weights=first.static_weights,
    )
    unstack(made, linears)
    return made


def unstack(whole: W8A8Linear, linears: Sequence[W8A8Linear]) -> None:
    """Makes them parts of the whole, where it is now."""
    for name in _BY_ROWS:
        rows = getattr(whole, name)
        if rows is not None:
            parts = rows.split([len(getattr(each, name)) for each in linears])
            for each, part in zip(linears, parts, strict=True):
                setattr(each, name, part)
    for name in _COMMON:
        for each in linears:
            setattr(each, name, getattr(whole, name))


def same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))
