"""DeepGEMM's dense products, in the four layouts: a is [M, K] (n) or [K, M] (t), b [K, N] (n) or [N, K] (t).

All fill d [M, N] with a @ b + c and change no result by compiled_dims or disable_ue8m0_cast.
"""

from __future__ import annotations

from typing import Any

from .. import _core
from ._deep_gemm_recipe import check_recipes, pair
from ._wrong_operands import needed

Scaled = tuple[Any, Any]


def fp8_gemm_nt(
    a: Scaled,
    b: Scaled,
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
    check_recipes(a, b, recipe, recipe_a, recipe_b)
    (a_data, a_scale), (b_data, b_scale) = a, b
    _core.scaled_gemm(
        a_data, b_data.T, a_scale, b_scale.T, c=c, out=needed("d", d), alpha=1.0 if alpha is None else alpha
    )


def fp8_gemm_nn(
    a: Scaled,
    b: Scaled,
    d: Any,
    c: Any = None,
    recipe: tuple[int, int, int] | None = None,
    recipe_a: tuple[int, int] | None = None,
    recipe_b: tuple[int, int] | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
) -> None:
    """fp8_gemm_nt of b [K, N], whose scales are transposed as it is: [ceil(K / 128), N or ceil(N / 128)]."""
    fp8_gemm_nt(a, _transposed("b", b), d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)


def fp8_gemm_tn(
    a: Scaled,
    b: Scaled,
    d: Any,
    c: Any = None,
    recipe: tuple[int, int, int] | None = None,
    recipe_a: tuple[int, int] | None = None,
    recipe_b: tuple[int, int] | None = None,
    compiled_dims: str = "mn",
    disable_ue8m0_cast: bool = False,
) -> None:
    """The same of a [K, M], and b [K, N]."""
    fp8_gemm_nt(
        _transposed("a", a), _transposed("b", b), d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast
    )


def fp8_gemm_tt(
    a: Scaled,
    b: Scaled,
    d: Any,
    c: Any = None,
    recipe: tuple[int, int, int] | None = None,
    recipe_a: tuple[int, int] | None = None,
    recipe_b: tuple[int, int] | None = None,
    compiled_dims: str = "mn",
    disable_ue8m0_cast: bool = False,
) -> None:
    """The same of a [K, M], and b [N, K]."""
    fp8_gemm_nt(_transposed("a", a), b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)


def fp8_gemm_nt_skip_head_mid(
    a: Scaled,
    b: Scaled,
    d: Any,
    head_splits: tuple[int, int, int],
    recipe: tuple[int, int, int] | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
) -> None:
    """fp8_gemm_nt into columns of d, a torch tensor [M, heads * (left + mid + right)]: b has left + right rows for each
    head, and the mid columns between stay as they are. The product is copied there."""
    left, mid, right = head_splits
    weights, _ = pair("b", b)
    product = d.new_empty(d.shape[0], weights.shape[0])
    if product.shape[1] % (left + right) or d.shape[1] != product.shape[1] // (left + right) * (left + mid + right):
        raise ValueError(
            f"d is {tuple(d.shape)} and b {tuple(weights.shape)}, with head_splits = {head_splits}: b must have "
            f"{left + right} rows for each head, and d {left + mid + right} columns"
        )
    fp8_gemm_nt(a, b, product, None, recipe)
    heads, places = product.unflatten(1, (-1, left + right)), d.unflatten(1, (-1, left + mid + right))
    places[..., :left] = heads[..., :left]
    places[..., left + mid :] = heads[..., left:]


def bf16_gemm_nt(a: Any, b: Any, d: Any, c: Any = None, compiled_dims: str = "nk", alpha: float | None = None) -> None:
    """Fills d [M, N] with alpha * a @ b.T + c; a is [M, K], b [N, K]."""
    _core.gemm(a, b.T, c=c, out=needed("d", d), alpha=1.0 if alpha is None else alpha)


def bf16_gemm_nn(a: Any, b: Any, d: Any, c: Any = None, compiled_dims: str = "nk") -> None:
    """The same of b [K, N]."""
    bf16_gemm_nt(a, b.T, d, c)


def bf16_gemm_tn(a: Any, b: Any, d: Any, c: Any = None, compiled_dims: str = "mn") -> None:
    """The same of a [K, M], and b [K, N]."""
    bf16_gemm_nt(a.T, b.T, d, c)


def bf16_gemm_tt(a: Any, b: Any, d: Any, c: Any = None, compiled_dims: str = "mn") -> None:
    """The same of a [K, M], and b [N, K]."""
    bf16_gemm_nt(a.T, b, d, c)


def cublaslt_gemm_nt(a: Any, b: Any, d: Any, c: Any = None) -> None:
    """bf16_gemm_nt, by which it is compared with cuBLASLt there; here it is the same product."""
    bf16_gemm_nt(a, b, d, c)


def cublaslt_gemm_nn(a: Any, b: Any, d: Any, c: Any = None) -> None:
    """bf16_gemm_nn."""
    bf16_gemm_nn(a, b, d, c)


def cublaslt_gemm_tn(a: Any, b: Any, d: Any, c: Any = None) -> None:
    """bf16_gemm_tn."""
    bf16_gemm_tn(a, b, d, c)


def cublaslt_gemm_tt(a: Any, b: Any, d: Any, c: Any = None) -> None:
    """bf16_gemm_tt."""
    bf16_gemm_tt(a, b, d, c)


def _transposed(name: str, operand: Scaled) -> Scaled:
    data, scale = pair(name, operand)
    return data.T, scale.T
