"""DeepGEMM's products with groups of K, for weight gradients: k_grouped_*_contiguous.

d[g] = a[rows of g].T @ b[rows of g] + c[g], [M, N] each; c may be d, or None. grouped_layout is
int32 [G] on the operands' device: how many rows each group has, in order, or, with
use_psum_layout, where each ends, beginning at a multiple of 128. d and c are float32, or another
type of float. All are one launch, and sizes stay on the device: ks_cpu, where it is given, is only
checked by k_grouped_fp8_gemm_nt_contiguous. compiled_dims changes no result.
"""

from __future__ import annotations

from typing import Any

from .. import _core
from ._deep_gemm_recipe import BLOCK, pair
from ._wrong_operands import needed

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
    _core.grouped_gemm(a.mT, b, **bounds, c=c, out=needed("d", d))


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
    (a, scale_a), (b, scale_b) = pair("a", a), pair("b", b)
    _core.grouped_gemm(
        a.mT, b, _ends(grouped_layout, use_psum_layout), alignment=BLOCK, scale_a=scale_a.mT,
        scale_b=scale_b, c=c, out=needed("d", d),
    )  # fmt: skip


def k_grouped_fp8_gemm_nt_contiguous(
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
    """The same of groups that are stored one behind the other, [M, k] and [N, k] each.

    a and b are (all groups' elements [K * M], scales [M, K / 128]), the same with N for b. The groups' sizes are
    multiples of 128, unless use_psum_layout: then each has room for whole blocks.
    """
    _check_recipe(recipe)
    for group, k in enumerate(ks_cpu or ()):
        if k % BLOCK != 0 and not use_psum_layout:
            raise ValueError(f"ks_cpu[{group}] is {k}; it must be a multiple of {BLOCK}")
    (a, scale_a), (b, scale_b) = pair("a", a), pair("b", b)
    _core.grouped_gemm(
        a, b, _ends(grouped_layout, use_psum_layout), alignment=BLOCK, scale_a=scale_a,
        scale_b=scale_b.mT, c=c, out=needed("d", d),
    )  # fmt: skip


def _check_recipe(recipe: tuple[int, int, int]) -> None:
    if tuple(recipe) != _RECIPE:
        raise ValueError(f"recipe is {tuple(recipe)}; {_RECIPE} is served")


def _ends(grouped_layout: Any, use_psum_layout: bool) -> Any:
    return grouped_layout if use_psum_layout else grouped_layout.cumsum(0)
