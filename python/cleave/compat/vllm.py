"""cutlass_scaled_mm, cutlass_scaled_mm_azp, quantisations, norms with quantisation and routers of vllm._custom_ops;
norms with static scales of torch.ops._C; per_token_group_quant_fp8 and _int8 of its quantisation's utils.

The norms are quantised from float32, where vLLM rounds them to the input's dtype before. Groups of zeros have scale 0,
where vLLM gives a smallest one. What Cleave has not is in `REFUSED`, with the reason; reading such a name raises
AttributeError that says it.
"""

from __future__ import annotations

import math
from typing import Any

from .. import _core
from .._norm import rms_norm
from ._refused import refusing
from ._rows import rows_of, written_rows
from ._vllm_quantize import (
    per_token_group_quant_fp8,
    per_token_group_quant_int8,
    scaled_fp8_quant,
    scaled_int8_quant,
)
from ._vllm_route import grouped_topk, topk_sigmoid, topk_softmax
from ._wrong_operands import needed

_FP4 = "elements of 4 bits"
_MOE = "sizes of groups that may stand for swapped operands; cleave.grouped_gemm takes offsets, cleave.moe makes them"

REFUSED = {
    "cutlass_scaled_fp4_mm": _FP4,
    "scaled_fp4_quant": _FP4,
    "cutlass_w4a8_mm": _FP4,
    "cutlass_moe_mm": _MOE,
    "get_cutlass_moe_mm_data": _MOE,
    "cutlass_fp4_moe_mm": _FP4,
    "cutlass_w4a8_moe_mm": _FP4,
    "moe_align_block_size": "padding of groups to blocks of tiles, which no product of Cleave's needs",
    "shuffle_rows": "cleave.moe.permute sorts tokens, and gather takes its indices",
    "topk_hash_softplus_sqrt": "scores by softplus, and experts by tables of token ids",
    "silu_and_mul_per_block_quant": 'products quantise by themselves: activation="swiglu", out_scale="block_1x128"',
}

__getattr__ = refusing(__name__, REFUSED)

__all__ = [
    "cutlass_group_gemm_supported",
    "cutlass_scaled_mm",
    "cutlass_scaled_mm_azp",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_scaled_mm_supports_fp8",
    "fused_add_rms_norm_static_fp8_quant",
    "grouped_topk",
    "per_token_group_quant_fp8",
    "per_token_group_quant_int8",
    "rms_norm_dynamic_per_token_quant",
    "rms_norm_per_block_quant",
    "rms_norm_static_fp8_quant",
    "scaled_fp8_quant",
    "scaled_int8_quant",
    "topk_sigmoid",
    "topk_softmax",
]

# The least compute capabilities with kernels: any, and for 8-bit floats.
_OLDEST, _OLDEST_FP8 = 80, 89


def cutlass_scaled_mm_supports_fp8(cuda_device_capability: int) -> bool:
    """Whether cutlass_scaled_mm takes 8-bit floats on such a GPU: 90 is Hopper."""
    return cuda_device_capability >= _OLDEST_FP8


def cutlass_scaled_mm_supports_block_fp8(cuda_device_capability: int) -> bool:
    """The same with scales of blocks."""
    return cuda_device_capability >= _OLDEST_FP8


def cutlass_group_gemm_supported(cuda_device_capability: int) -> bool:
    """Whether there are grouped products, `cleave.grouped_gemm`, for such a GPU."""
    return cuda_device_capability >= _OLDEST


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
    _core.quantize(
        rows_of(input), result.dtype, "tensor", norm=norm, scale=needed("scale", scale), out=written_rows(result)
    )


def fused_add_rms_norm_static_fp8_quant(
    result: Any, input: Any, residual: Any, weight: Any, scale: Any, epsilon: float
) -> None:
    """The same of input + residual, which residual becomes, in place."""
    residual = written_rows(residual)
    _core.quantize(
        rows_of(input),
        result.dtype,
        "tensor",
        norm=rms_norm(weight, epsilon),
        residual=residual,
        residual_out=residual,
        scale=needed("scale", scale),
        out=written_rows(result),
    )


def _normalize(
    input: Any, weight: Any, epsilon: float, dtype: Any, granularity: str, scale_ub: Any, residual: Any, **form: Any
) -> tuple[Any, Any]:
    if scale_ub is not None:
        raise ValueError("scale_ub is given; scales without a bound are served: pass None")
    if residual is not None:
        residual = written_rows(residual)
    q, scale, *_ = _core.quantize(
        rows_of(input),
        dtype,
        granularity,
        norm=rms_norm(weight, epsilon),
        residual=residual,
        residual_out=residual,
        **form,
    )
    return q.reshape(input.shape), scale


def _multiply(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any, bias: Any, **zero_points: Any) -> Any:
    rows = rows_of(a)
    m, n = rows.shape[0], b.shape[1]
    if math.prod(scale_a.shape) in (1, m) and math.prod(scale_b.shape) in (1, n):
        scale_a, scale_b = scale_a.reshape(-1), scale_b.reshape(-1)
    d = _core.scaled_gemm(rows, b, scale_a, scale_b, bias=bias, out_dtype=out_dtype, **zero_points)
    return d if rows is a else d.reshape(*a.shape[:-1], n)
