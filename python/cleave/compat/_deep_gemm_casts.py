"""DeepGEMM's per_token_cast_to_fp8 and per_block_cast_to_fp8, by one kernel each.

Groups whose largest |x| is below 1e-4 have scales of their own, where DeepGEMM gives them that of 1e-4.
"""

from __future__ import annotations

from typing import Any

from .. import _core
from ._deep_gemm_recipe import BLOCK


def per_token_cast_to_fp8(
    x: Any, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False
) -> tuple[Any, Any]:
    """x [M, N] as float8_e4m3fn, and float32 scales [M, ceil(N / 128)], with use_ue8m0 rounded up to powers of two.
    gran_k is 128, use_packed_ue8m0 not True."""
    if use_packed_ue8m0:
        raise ValueError("use_packed_ue8m0 is True; Hopper multiplies by float32 scales: pass False")
    _check_group(gran_k)
    q, scale = _core.quantize(x, "float8_e4m3fn", "block_1x128", use_ue8m0=bool(use_ue8m0))
    return q, scale


def per_block_cast_to_fp8(x: Any, use_ue8m0: bool, gran_k: int = 128) -> tuple[Any, Any]:
    """x [M, N] as float8_e4m3fn, and float32 scales [ceil(M / 128), ceil(N / 128)], with use_ue8m0 rounded up to powers
    of two."""
    _check_group(gran_k)
    q, scale = _core.quantize(x, "float8_e4m3fn", "block_128x128", use_ue8m0=bool(use_ue8m0))
    return q, scale


def _check_group(gran_k: int) -> None:
    if gran_k != BLOCK:
        raise ValueError(f"gran_k is {gran_k}; {BLOCK} is served")
