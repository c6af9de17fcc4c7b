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
    _check("a", recipe_a, *a)
    _check("b", recipe_b, *b)


def _check(name: str, recipe: tuple[int, int] | None, data: Any, scale: Any) -> None:
    if recipe is None:
        return
    rows, ks = recipe
    if ks != BLOCK or rows not in (1, BLOCK):
        raise ValueError(f"the recipe of {name} is {recipe}; (1, 128) and (128, 128) are served")
    expected = (*data.shape[:-2], -(-data.shape[-2] // rows), -(-data.shape[-1] // ks))
    if tuple(scale.shape) != expected:
        raise ValueError(f"the scales of {name} are {tuple(scale.shape)}; its recipe {recipe} needs {expected}")
