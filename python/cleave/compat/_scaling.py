"""Scales, recipes and swizzles as torch.nn.functional's scaled products take them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class Recipe(IntEnum):
    """torch's ScalingType, as far as it is served."""

    TENSOR_WISE = 0
    ROW_WISE = 1
    BLOCK_1X128 = 4
    BLOCK_128X128 = 5


def level(name: str, scale: Any, recipe: Any) -> tuple[Any, int]:
    """The scale and its recipe's number, out of the lists that they may come in."""
    scales, recipes = _levels(scale), _levels(recipe)
    if len(scales) != 1 or len(recipes) != 1:
        raise ValueError(f"{name} has {len(scales)} levels; scales of one level are served")
    return scales[0], _number(recipes[0])


def shaped(name: str, scale: Any, shape: tuple[int, ...]) -> Any:
    if tuple(scale.shape) != shape:
        raise ValueError(f"{name} is {tuple(scale.shape)}; its recipe needs {shape}")
    return scale


def check_plain(swizzle_a: Any, swizzle_b: Any, contraction_dim: Any) -> None:
    """Refuses what is laid out in another way than the shapes say."""
    for name, swizzle in (("swizzle_a", swizzle_a), ("swizzle_b", swizzle_b)):
        if any(_number(level) for level in _levels(swizzle)):
            raise ValueError(f"{name} is {swizzle}; only scales without swizzle are served")
    if tuple(contraction_dim) not in ((), (1, 0), (-1, -2)):
        raise ValueError(f"contraction_dim is {contraction_dim}; it must be () or (1, 0)")


def _levels(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _number(member: Any) -> int:
    """The name of a ScalingType or SwizzleType."""
    return int(getattr(member, "value", member))
