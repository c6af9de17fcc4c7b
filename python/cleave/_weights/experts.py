"""The weights of several experts as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from .arrays import namespace
from .packed import PackedWeights

_ARRAYS = ("packed", "scales", "zeros", "global_scale")


def parts_of_experts(count: int, **arrays: Any) -> Iterator[dict[str, Any]]:
    """Each expert's part of each array, by name."""
    for name, array in arrays.items():
        if array is not None and (not getattr(array, "shape", ()) or len(array) != count):
            raise ValueError(f"{name} must have one for each of the {count} experts of weight, as its first dimension")
    for expert in range(count):
        yield {name: None if array is None else array[expert] for name, array in arrays.items()}


def stacked(experts: list[PackedWeights]) -> PackedWeights:
    first = experts[0]
    arrays = {name: [getattr(each, name) for each in experts] for name in _ARRAYS}
    together = {name: None if parts[0] is None else stack(parts) for name, parts in arrays.items()}
    if first.global_scale is not None and first.global_scale.shape == (1,):
        together["global_scale"] = together["global_scale"].reshape(-1)
    return dataclasses.replace(first, shape=(len(experts), *first.shape), **together)


def experts_of(weights: PackedWeights) -> Iterator[PackedWeights]:
    count, *shape = weights.shape
    for part in parts_of_experts(count, **{name: getattr(weights, name) for name in _ARRAYS}):
        if part["global_scale"] is not None:
            part["global_scale"] = part["global_scale"].reshape(-1)
        yield dataclasses.replace(weights, shape=tuple(shape), **part)


def stack(arrays: list[Any]) -> Any:
    return namespace(arrays[0], "weight").stack(arrays)
