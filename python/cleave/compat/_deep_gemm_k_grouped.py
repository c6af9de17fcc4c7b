"""DeepGEMM's products with groups of K, for weight gradients: k_grouped_*_contiguous.

d[g] = a[rows of g].T @ b[rows of g] + c[g], [M, N] each; c may be d, or None. grouped_layout is
int32 [G] on the operands' device: how many rows each group has, in order, or, with
use_psum_layout, where each ends, beginning at a multiple of 128. d and c are float32, or another
type of float. compiled_dims changes no result; k_grouped_fp8_gemm_nt_contiguous alone reads ks_cpu.
"""

from __future__ import annotations

from typing import Any

from .. import _core
from ._deep_gemm_recipe import BLOCK

_RECIPE = (1, 1, BLOCK)


def k_grouped_bf16_gemm_tn_contiguous(
    a: Any,
    b: Any,
    d: Any,
    ks_cpu: list[int] | None,
    grouped_layout: Any,
    c: Any = None,
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
) -> None:
    """Fills d [G, M, N]; a is [K, M], b [K, N], K being all groups' together."""
    bounds = {"offs": _ends(grouped_layout, use_psum_layout)}
    if use_psum_layout:
        bounds["alignment"] = BLOCK
    _core.grouped_gemm(a.mT, b, **bounds, c=c, out=d)


def k_grouped_fp8_gemm_tn_contiguous(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    d: Any,
    ks_cpu: list[int] | None,
    grouped_layout: Any,
    c: Any = None,
    recipe: tuple[int, int, int] = _RECIPE,
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
) -> None:
    """The same of 8-bit floats, with float32 scales [K / 128, M] and [K / 128, N], rounded up.

    The groups' sizes are multiples of 128, unless use_psum_layout.
    """
    _check_recipe(recipe)
    (a, scale_a), (b, scale_b) = a, b
    _core.grouped_gemm(
        a.mT, b, _ends(grouped_layout, use_psum_layout), alignment=BLOCK, scale_a=scale_a.mT,
        scale_b=scale_b, c=c, out=d,
    )  # fmt: skip


def k_grouped_fp8_gemm_nt_contiguous(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    d: Any,
    ks_cpu: list[int],
    grouped_layout: Any,
    c: Any = None,
    recipe: tuple[int, int, int] = _RECIPE,
    compiled_dims: str = "mn",
    use_psum_layout: bool = False,
) -> None:
    """The same of groups that are stored one behind the other, [M, k] and [N, k] each.

    a and b are (all groups' elements [K * M], scales [M, K / 128]), the same with N for b. Such
    groups have no stride in common: each is a launch of its own, of the sizes in ks_cpu, multiples
    of 128. For one launch, and sizes that stay on the GPU, use the tn form.
    """
    _check_recipe(recipe)
    if use_psum_layout:
        raise ValueError("use_psum_layout is True; groups that are stored one by one have no gaps")
    for group, k in enumerate(ks_cpu):
        if k % BLOCK != 0:
            raise ValueError(f"ks_cpu[{group}] is {k}; it must be a multiple of {BLOCK}")
    (a, scale_a), (b, scale_b) = a, b
    _, m, n = d.shape
    begin = 0
    for group, k in enumerate(ks_cpu):
        end = begin + k
        blocks = slice(begin // BLOCK, end // BLOCK)
        _core.scaled_gemm(
            a[begin * m : end * m].reshape(m, k),
            b[begin * n : end * n].reshape(n, k).mT,
            scale_a[:, blocks],
            scale_b[:, blocks].mT,
            c=None if c is None else c[group],
            out=d[group],
        )
        begin = end


def _check_recipe(recipe: tuple[int, int, int]) -> None:
    if tuple(recipe) != _RECIPE:
        raise ValueError(f"recipe is {tuple(recipe)}; {_RECIPE} is served")


def _ends(grouped_layout: Any, use_psum_layout: bool) -> Any:
    return grouped_layout if use_psum_layout else grouped_layout.cumsum(0)
