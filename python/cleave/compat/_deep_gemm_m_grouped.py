"""DeepGEMM's products with groups of rows: m_grouped_*_contiguous and m_grouped_*_masked.

| layout     | array                              | the rows of group g                          |
|------------|------------------------------------|----------------------------------------------|
| contiguous | of every row its group, or -1, [M] | those that name it, which must be neighbours |
| psum       | ends [G], with use_psum_layout     | up to its end, from a multiple of 128 on     |
| masked     | counts [G], as masked_m            | the first ones of a[g]                       |

The arrays are int32, on the operands' device, and stay there. Groups may have any size: nothing
needs alignment but psum's beginnings. A kernel is chosen for the expected rows of a group;
compiled_dims and disable_ue8m0_cast change nothing.

What ensure_zero_padding leaves open is as DeepGEMM has it: without it, padding that follows a
group's rows in the same 128 rows is multiplied like them, so that zeros in a give zeros in d, and
other padding is not written.
"""

from __future__ import annotations

from typing import Any

from .. import _core
from ._deep_gemm_recipe import check_recipes, pair
from ._wrong_operands import needed

_ALIGNMENT = 128  # of the groups in a psum layout; rows that DeepGEMM computes together


def m_grouped_bf16_gemm_nt_contiguous(
    a: Any,
    b: Any,
    d: Any,
    grouped_layout: Any,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
) -> None:
    """Fills the rows of d [M, N] with a @ b[group].T; a is [M, K], b [G, N, K].

    Rows of no group become zero with ensure_zero_padding.
    """
    bounds = _row_bounds(grouped_layout, b.shape[0], use_psum_layout, not ensure_zero_padding)
    _core.grouped_gemm(
        a, b.mT, **bounds, out=needed("d", d), zero_rest=ensure_zero_padding,
        expected_m=expected_m_for_psum_layout,
    )  # fmt: skip


def m_grouped_bf16_gemm_nn_contiguous(
    a: Any,
    b: Any,
    d: Any,
    grouped_layout: Any,
    compiled_dims: str = "nk",
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
) -> None:
    """The same of b [G, K, N]."""
    m_grouped_bf16_gemm_nt_contiguous(a, b.mT, d, grouped_layout, compiled_dims, use_psum_layout, ensure_zero_padding)


def m_grouped_bf16_gemm_nt_masked(
    a: Any, b: Any, d: Any, masked_m: Any, expected_m: int, compiled_dims: str = "nk"
) -> None:
    """Fills the first masked_m[g] rows of each d[g] with those of a[g] @ b[g].T.

    a is [G, M, K], without gaps between its groups, b [G, N, K], d [G, M, N]. Other rows of d stay
    as they are.
    """
    _core.grouped_gemm(a, b.mT, counts=needed("masked_m", masked_m), expected_m=expected_m, out=needed("d", d))


def m_grouped_fp8_gemm_nt_contiguous(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    d: Any,
    grouped_layout: Any,
    recipe: tuple[int, int, int] | None = None,
    recipe_a: tuple[int, int] | None = None,
    recipe_b: tuple[int, int] | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
    expected_m_for_psum_layout: int | None = None,
) -> None:
    """The same of 8-bit floats with float32 scales, in either major.

    a's scales are [M, K / 128], b's [G, N, K / 128] or [G, N / 128, K / 128], quotients rounded up.
    """
    check_recipes(a, b, recipe, recipe_a, recipe_b)
    bounds = _row_bounds(grouped_layout, b[0].shape[0], use_psum_layout, not ensure_zero_padding)
    _core.grouped_gemm(
        a[0], b[0].mT, **bounds, scale_a=a[1], scale_b=b[1].mT, out=needed("d", d),
        zero_rest=ensure_zero_padding, expected_m=expected_m_for_psum_layout,
    )  # fmt: skip


def m_grouped_fp8_gemm_nn_contiguous(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    d: Any,
    grouped_layout: Any,
    recipe: tuple[int, int, int] | None = None,
    recipe_a: tuple[int, int] | None = None,
    recipe_b: tuple[int, int] | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
    use_psum_layout: bool = False,
    ensure_zero_padding: bool = True,
) -> None:
    """The same of b [G, K, N] and its scales [G, K / 128, N or N / 128]."""
    weights, scales = pair("b", b)
    m_grouped_fp8_gemm_nt_contiguous(
        a, (weights.mT, scales.mT), d, grouped_layout, recipe, recipe_a, recipe_b,
        compiled_dims, disable_ue8m0_cast, use_psum_layout, ensure_zero_padding,
    )  # fmt: skip


def m_grouped_fp8_gemm_nt_masked(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    d: Any,
    masked_m: Any,
    expected_m: int,
    recipe: tuple[int, int, int] | None = None,
    recipe_a: tuple[int, int] | None = None,
    recipe_b: tuple[int, int] | None = None,
    compiled_dims: str = "nk",
    disable_ue8m0_cast: bool = False,
) -> None:
    """m_grouped_bf16_gemm_nt_masked of 8-bit floats with float32 scales.

    a's scales are [G, M, K / 128], in either major, b's as in m_grouped_fp8_gemm_nt_contiguous.
    """
    check_recipes(a, b, recipe, recipe_a, recipe_b)
    _core.grouped_gemm(
        a[0], b[0].mT, counts=needed("masked_m", masked_m), expected_m=expected_m,
        scale_a=a[1], scale_b=b[1].mT, out=needed("d", d),
    )  # fmt: skip


def _row_bounds(grouped_layout: Any, groups: int, use_psum_layout: bool, with_padding: bool) -> dict[str, Any]:
    """Keywords of cleave.grouped_gemm. with_padding: a group has that of its last block of rows."""
    if use_psum_layout:
        ends = grouped_layout
        if with_padding:
            ends = (ends + (_ALIGNMENT - 1)) // _ALIGNMENT * _ALIGNMENT
        return {"offs": ends, "alignment": _ALIGNMENT}
    starts, sizes = _runs(grouped_layout, groups, with_padding)
    return {"starts": starts, "sizes": sizes}


def _runs(group_of_row: Any, groups: int, with_padding: bool) -> tuple[Any, Any]:
    """Where each group's rows begin and how many there are, found on the device."""
    import torch

    count = group_of_row.shape[0]
    row = torch.arange(count, dtype=torch.int32, device=group_of_row.device)
    padding = (group_of_row < 0) | (group_of_row >= groups)
    if with_padding:
        before = row.masked_fill(padding, -1).cummax(0).values  # the last row that has a group
        padding = before // _ALIGNMENT != row // _ALIGNMENT
        group_of_row = group_of_row[before.clamp(min=0).long()]
    group = group_of_row.masked_fill(padding, 0).long()
    starts = row.new_full((groups,), count)
    starts.scatter_reduce_(0, group, row.masked_fill(padding, count), "amin")
    ends = row.new_zeros(groups)
    ends.scatter_reduce_(0, group, (row + 1).masked_fill(padding, 0), "amax")
    return starts, (ends - starts).clamp_(min=0)
