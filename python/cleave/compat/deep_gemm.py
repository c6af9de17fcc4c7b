"""fp8_gemm_nt and bf16_gemm_nt of DeepGEMM."""

from __future__ import annotations

from typing import Any

from .. import _core

__all__ = ["bf16_gemm_nt", "fp8_gemm_nt"]

_BLOCK = 128


def fp8_gemm_nt(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    d: Any,
    c: Any = None,
    recipe: tuple[int, int, int] | None = None,
    recipe_a: tuple[int, int] | None = None,
    recipe_b: tuple[int, int] | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    alpha: float | None = None,
) -> None:
    """Fills d [M, N] with alpha * a @ b.T + c, of 8-bit floats that are scaled in blocks.

    a is ([M, K], float32 scales [M or ceil(M / 128), ceil(K / 128)]), b the same with N for M, the
    scales in either major. The shapes tell a block's rows, 1 or 128; the recipes, (rows of a, rows
    of b, 128) or (rows, 128) for each, are only checked. compiled_dims and disable_ue8m0_cast
    change no result here.
    """
    (a_data, a_scale), (b_data, b_scale) = a, b
    if recipe is not None:
        recipe_a, recipe_b = (recipe[0], recipe[2]), (recipe[1], recipe[2])
    _check_recipe("a", recipe_a, a_data, a_scale)
    _check_recipe("b", recipe_b, b_data, b_scale)
    _core.scaled_gemm(
        a_data, b_data.T, a_scale, b_scale.T, c=c, out=d, alpha=1.0 if alpha is None else alpha
    )


def bf16_gemm_nt(
    a: Any, b: Any, d: Any, c: Any = None, compiled_dims: str = "nk", alpha: float | None = None
) -> None:
    """Fills d [M, N] with alpha * a @ b.T + c; a is [M, K], b [N, K]."""
    _core.gemm(a, b.T, c=c, out=d, alpha=1.0 if alpha is None else alpha)


def _check_recipe(name: str, recipe: tuple[int, int] | None, data: Any, scale: Any) -> None:
    if recipe is None:
        return
    rows, ks = recipe
    if ks != _BLOCK or rows not in (1, _BLOCK):
        raise ValueError(f"the recipe of {name} is {recipe}; (1, 128) and (128, 128) are served")
    expected = (-(-data.shape[0] // rows), -(-data.shape[1] // ks))
    if tuple(scale.shape) != expected:
        raise ValueError(
            f"the scales of {name} are {tuple(scale.shape)}; its recipe {recipe} needs {expected}"
        )
