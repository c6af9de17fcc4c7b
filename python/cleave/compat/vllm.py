"""cutlass_scaled_mm and cutlass_scaled_mm_azp of vllm._custom_ops."""

from __future__ import annotations

import math
from typing import Any

from .. import _core

__all__ = ["cutlass_scaled_mm", "cutlass_scaled_mm_azp"]


def cutlass_scaled_mm(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any, bias: Any = None) -> Any:
    """(scale_a * a) @ (scale_b * b) + bias, of int8 or 8-bit floats, as [..., N].

    a is [..., K] and b [K, N]. The scales have one value, or one per row of a and per column of b,
    in any shape; or a's are [M, ceil(K / 128)] and b's [ceil(K / 128), ceil(N / 128)].
    """
    return _multiply(a, b, scale_a, scale_b, out_dtype, bias)


def cutlass_scaled_mm_azp(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any, azp_adj: Any, azp: Any = None, bias: Any = None
) -> Any:
    """The same of an int8 `a` with zero points.

    azp_adj: int32, N values: the sums of b's columns, times the zero point if there is one for all
    of a. azp: int32, M values: the zero points, if there is one per row.
    """
    azp = None if azp is None else azp.reshape(-1)
    return _multiply(a, b, scale_a, scale_b, out_dtype, bias, azp=azp, azp_adj=azp_adj.reshape(-1))


def _multiply(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any, bias: Any, **zero_points: Any) -> Any:
    rows = a if len(a.shape) == 2 else a.reshape(-1, a.shape[-1])
    m, n = rows.shape[0], b.shape[1]
    if math.prod(scale_a.shape) in (1, m) and math.prod(scale_b.shape) in (1, n):
        scale_a, scale_b = scale_a.reshape(-1), scale_b.reshape(-1)
    d = _core.scaled_gemm(rows, b, scale_a, scale_b, bias=bias, out_dtype=out_dtype, **zero_points)
    return d if rows is a else d.reshape(*a.shape[:-1], n)
