"""DeepGEMM's recipes: how many rows, and elements of K, of an operand share a scale."""

from __future__ import annotations

from typing import Any

BLOCK = 128


def check_recipes(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    recipe: tuple[int, int, int] | None,
    recipe_a: tuple[int, int] | None,
    recipe_b: tuple[int, int] | None,
) -> None:
    """Refuses scales of another shape than the recipes ask of [..., rows, K]; None asks nothing."""
    if recipe is not None:
        recipe_a, recipe_b = (recipe[0], recipe[2]), (recipe[1], recipe[2])
    for name, recipe, operand in (("a", recipe_a, a), ("b", recipe_b, b)):
        data, scale = pair(name, operand)
        if recipe is not None:
            check_shape(name, recipe, data.shape, scale)


def pair(name: str, operand: Any) -> tuple[Any, Any]:
    """Data and scales. An array of two rows would be taken apart without a word."""
    if not isinstance(operand, tuple | list) or len(operand) != 2:
        raise TypeError(f"{name} is {type(operand).__name__}; it must be a tuple of 8-bit floats and their scales")
    return operand[0], operand[1]


def check_shape(name: str, recipe: tuple[int, int], shape: tuple[int, ...], scale: Any) -> None:
    """Refuses scales of another shape than the recipe, (rows, elements of K), asks for data of that shape."""
    rows, ks = recipe
    if ks != BLOCK or rows not in (1, BLOCK):
        raise ValueError(f"the recipe of {name} is {recipe}; (1, 128) and (128, 128) are served")
    expected = (*shape[:-2], -(-shape[-2] // rows), -(-shape[-1] // ks))
    if tuple(scale.shape) != expected:
        raise ValueError(f"the scales of {name} are {tuple(scale.shape)}; its recipe {recipe} needs {expected}")
