"""What jax.vmap makes of a product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax.custom_batching import custom_vmap

from ._call import Given

Function = Callable[..., Array]
# From the function, the size of the new axis, which arguments have it (first), and these: a result that has it first,
# or None where there is nothing better than one call after the other.
Rule = Callable[[Function, int, Sequence[bool], Sequence[Given]], Array | None]


def batched(function: Function, rule: Rule) -> Function:
    """`function`, of arrays or Nones, with a rule for jax.vmap."""
    mapped = custom_vmap(function)

    @mapped.def_vmap
    def by_rule(size: int, has_axis: Sequence[Any], *arrays: Given) -> tuple[Array, bool]:
        along = [array is not None and bool(has) for array, has in zip(arrays, has_axis, strict=True)]
        made = rule(mapped, size, along, arrays)
        return (_one_by_one(mapped, along, arrays) if made is None else made), True

    return mapped


def _one_by_one(function: Function, along: Sequence[bool], arrays: Sequence[Given]) -> Array:
    def of_one(some: list[Array]) -> Array:
        rest = iter(some)
        return function(*(next(rest) if has else array for has, array in zip(along, arrays, strict=True)))

    return jax.lax.map(of_one, [array for has, array in zip(along, arrays, strict=True) if has])


def fold(x: Array) -> Array:
    """A batch of matrices, or of vectors, as one."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
