"""DeepGEMM's layouts of scales, and its alignments; Cleave's products take scales of any strides."""

from __future__ import annotations

from typing import Any

from ._deep_gemm_recipe import BLOCK, check_shape

_TMA_BYTES = 16


def get_tma_aligned_size(x: int, element_size: int) -> int:
    """x elements, rounded up to whole 16 bytes."""
    step = _TMA_BYTES // element_size
    return -(-x // step) * step


def get_mn_major_tma_aligned_tensor(sf: Any) -> Any:
    """A copy of float32 scales [..., MN, K] with neighbours along MN, columns at multiples of 16 bytes."""
    *batch, mn, k = sf.shape
    made = sf.new_empty((*batch, k, get_tma_aligned_size(mn, sf.element_size())))[..., :mn].mT
    return made.copy_(sf)


def transform_sf_into_required_layout(
    sf: Any,
    mn: int,
    k: int,
    recipe: tuple[int, int, int] | tuple[int, int],
    num_groups: int | None = None,
    is_sfa: bool | None = None,
    disable_ue8m0_cast: bool = False,
    psum_layout: Any = None,
) -> Any:
    """float32 scales as DeepGEMM has them on Hopper: of rows, MN-major and aligned; of 128 x 128, as they are.

    recipe: (rows of a, rows of b, 128), of which is_sfa says whose these are; or (rows, 128).
    """
    if len(recipe) == 3:
        recipe = (recipe[0] if is_sfa else recipe[1], recipe[2])
    batch = () if num_groups is None else (num_groups,)
    check_shape("sf", recipe, (*batch, mn, k), sf)
    return get_mn_major_tma_aligned_tensor(sf) if recipe[0] == 1 else sf


def get_mk_alignment_for_contiguous_layout() -> int:
    """What groups begin at multiples of in a psum layout. Contiguous ones need no alignment here."""
    return BLOCK


def set_mk_alignment_for_contiguous_layout(value: int) -> None:
    """For 128 alone."""
    if value != BLOCK:
        raise ValueError(f"value is {value}; groups of a psum layout begin at multiples of {BLOCK}")


def get_theoretical_mk_alignment_for_contiguous_layout(expected_m: int | None = None) -> int:
    """The same, whatever is expected."""
    return BLOCK


def ceil_div(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(-x // y)


def align(x: int, y: int) -> int:
    """x, rounded up to a multiple of y."""
    return ceil_div(x, y) * y
