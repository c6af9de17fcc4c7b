"""fp8_gemm_nt and bf16_gemm_nt of DeepGEMM, and its grouped products."""

from __future__ import annotations

from typing import Any

from .. import _core
from ._deep_gemm_k_grouped import (
    k_grouped_bf16_gemm_tn_contiguous,
    k_grouped_fp8_gemm_nt_contiguous,
    k_grouped_fp8_gemm_tn_contiguous,
)
from ._deep_gemm_m_grouped import (
    m_grouped_bf16_gemm_nn_contiguous,
    m_grouped_bf16_gemm_nt_contiguous,
    m_grouped_bf16_gemm_nt_masked,
    m_grouped_fp8_gemm_nn_contiguous,
    m_grouped_fp8_gemm_nt_contiguous,
    m_grouped_fp8_gemm_nt_masked,
)
from ._deep_gemm_recipe import check_recipes

__all__ = [
    "bf16_gemm_nt",
    "fp8_gemm_nt",
    "k_grouped_bf16_gemm_tn_contiguous",
    "k_grouped_fp8_gemm_nt_contiguous",
    "k_grouped_fp8_gemm_tn_contiguous",
    "m_grouped_bf16_gemm_nn_contiguous",
    "m_grouped_bf16_gemm_nt_contiguous",
    "m_grouped_bf16_gemm_nt_masked",
    "m_grouped_fp8_gemm_nn_contiguous",
    "m_grouped_fp8_gemm_nt_contiguous",
    "m_grouped_fp8_gemm_nt_masked",
]


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
    check_recipes(a, b, recipe, recipe_a, recipe_b)
    (a_data, a_scale), (b_data, b_scale) = a, b
    _core.scaled_gemm(a_data, b_data.T, a_scale, b_scale.T, c=c, out=d, alpha=1.0 if alpha is None else alpha)


def bf16_gemm_nt(a: Any, b: Any, d: Any, c: Any = None, compiled_dims: str = "nk", alpha: float | None = None) -> None:
    """Fills d [M, N] with alpha * a @ b.T + c; a is [M, K], b [N, K]."""
    _core.gemm(a, b.T, c=c, out=d, alpha=1.0 if alpha is None else alpha)
