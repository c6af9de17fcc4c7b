"""cutlass_scaled_mm, cutlass_scaled_mm_azp and norms with quantisation of vllm._custom_ops; with static scales those of
torch.ops._C.

The norms are quantised from float32, where vLLM rounds them to the input's dtype before.
"""

from __future__ import annotations

import math
from typing import Any

from .. import _core
from .._norm import rms_norm

__all__ = [
    "cutlass_scaled_mm",
    "cutlass_scaled_mm_azp",
    "fused_add_rms_norm_static_fp8_quant",
    "rms_norm_dynamic_per_token_quant",
    "rms_norm_per_block_quant",
    "rms_norm_static_fp8_quant",
]


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


def rms_norm_dynamic_per_token_quant(
    input: Any, weight: Any, epsilon: float, quant_dtype: Any, scale_ub: Any = None, residual: Any = None
) -> tuple[Any, Any]:
    """The RMS norm of input, or of input + residual, quantised with a scale per row: (output, scales [M, 1]).

    input is [..., K]; quant_dtype int8 or an 8-bit float. residual becomes the sum, in place. scale_ub must be None.
    """
    return _normalize(input, weight, epsilon, quant_dtype, "row", scale_ub, residual)


def rms_norm_per_block_quant(
    input: Any,
    weight: Any,
    epsilon: float,
    quant_dtype: Any,
    group_size: list[int],
    scale_ub: Any = None,
    residual: Any = None,
    is_scale_transposed: bool = False,
    tma_alignment: int = 0,
) -> tuple[Any, Any]:
    """The same with a scale for each 128 neighbours: scales are [M, K / 128], in memory column by column if
    is_scale_transposed.

    group_size must be [1, 128]; tma_alignment, in elements, must divide M.
    """
    if list(group_size) != [1, 128]:
        raise ValueError(f"group_size is {list(group_size)}; it must be [1, 128]")
    rows = math.prod(input.shape[:-1])
    if is_scale_transposed and tma_alignment and rows % tma_alignment:
        raise ValueError(f"tma_alignment is {tma_alignment} for {rows} rows; it must divide them, or be 0")
    major = "mn" if is_scale_transposed else "k"
    return _normalize(input, weight, epsilon, quant_dtype, "block_1x128", scale_ub, residual, scale_major=major)


def rms_norm_static_fp8_quant(result: Any, input: Any, weight: Any, scale: Any, epsilon: float) -> None:
    """Writes the RMS norm of input, divided by scale (float32, one value), to result: 8-bit floats, [..., K]."""
    norm = rms_norm(weight, epsilon)
    _core.quantize(_rows(input), result.dtype, "tensor", norm=norm, scale=scale, out=_written_rows(result))


def fused_add_rms_norm_static_fp8_quant(
    result: Any, input: Any, residual: Any, weight: Any, scale: Any, epsilon: float
) -> None:
    """The same of input + residual, which residual becomes, in place."""
    residual = _written_rows(residual)
    _core.quantize(
        _rows(input),
        result.dtype,
        "tensor",
        norm=rms_norm(weight, epsilon),
        residual=residual,
        residual_out=residual,
        scale=scale,
        out=_written_rows(result),
    )


def _normalize(
    input: Any, weight: Any, epsilon: float, dtype: Any, granularity: str, scale_ub: Any, residual: Any, **form: Any
) -> tuple[Any, Any]:
    if scale_ub is not None:
        raise ValueError("scale_ub is given; scales without a bound are served: pass None")
    if residual is not None:
        residual = _written_rows(residual)
    q, scale, *_ = _core.quantize(
        _rows(input),
        dtype,
        granularity,
        norm=rms_norm(weight, epsilon),
        residual=residual,
        residual_out=residual,
        **form,
    )
    return q.reshape(input.shape), scale


def _rows(x: Any) -> Any:
    return x if len(x.shape) == 2 else x.reshape(-1, x.shape[-1])


def _written_rows(x: Any) -> Any:
    """Never of a copy."""
    return x if len(x.shape) == 2 else x.view(-1, x.shape[-1])


def _multiply(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any, bias: Any, **zero_points: Any) -> Any:
    rows = _rows(a)
    m, n = rows.shape[0], b.shape[1]
    if math.prod(scale_a.shape) in (1, m) and math.prod(scale_b.shape) in (1, n):
        scale_a, scale_b = scale_a.reshape(-1), scale_b.reshape(-1)
    d = _core.scaled_gemm(rows, b, scale_a, scale_b, bias=bias, out_dtype=out_dtype, **zero_points)
    return d if rows is a else d.reshape(*a.shape[:-1], n)
