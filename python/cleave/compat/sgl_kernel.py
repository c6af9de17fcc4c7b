"""fp8_scaled_mm, int8_scaled_mm, the quantisations and the routers of sgl_kernel, SGLang's kernels."""

from __future__ import annotations

from typing import Any

from .. import _core
from ._deep_gemm_recipe import BLOCK
from ._refused import refusing
from ._routing import route_into
from ._rows import rows_of, written_rows
from .vllm import cutlass_scaled_mm

_MOE = "arrays of pointers and strides; cleave.grouped_gemm takes the tensors themselves"

REFUSED = {
    "fp8_blockwise_scaled_grouped_mm": _MOE,
    "prepare_moe_input": _MOE,
    "apply_shuffle_mul_sum": "cleave.moe.unpermute does that",
    "moe_align_block_size": "padding of groups to blocks of tiles, which no product of Cleave's needs",
    "shuffle_rows": "cleave.moe.permute sorts tokens, and gather takes its indices",
}

__getattr__ = refusing(__name__, REFUSED)

__all__ = [
    "fp8_scaled_mm",
    "int8_scaled_mm",
    "sgl_per_token_group_quant_8bit",
    "sgl_per_token_quant_fp8",
    "topk_sigmoid",
    "topk_softmax",
]


def fp8_scaled_mm(mat_a: Any, mat_b: Any, scales_a: Any, scales_b: Any, out_dtype: Any, bias: Any = None) -> Any:
    """(scales_a * mat_a) @ (scales_b * mat_b) + bias, of 8-bit floats: `compat.vllm.cutlass_scaled_mm`."""
    return cutlass_scaled_mm(mat_a, mat_b, scales_a, scales_b, out_dtype, bias)


def int8_scaled_mm(mat_a: Any, mat_b: Any, scales_a: Any, scales_b: Any, out_dtype: Any, bias: Any = None) -> Any:
    """The same of int8."""
    return cutlass_scaled_mm(mat_a, mat_b, scales_a, scales_b, out_dtype, bias)


def sgl_per_token_quant_fp8(input: Any, output_q: Any, output_s: Any) -> None:
    """Writes input [M, K] to output_q as float8_e4m3fn, and a scale of each row to output_s [M, 1]."""
    _core.quantize(input, output_q.dtype, "row", out=output_q, scale_out=output_s.reshape(-1, 1))


def sgl_per_token_group_quant_8bit(
    input: Any,
    output_q: Any,
    output_s: Any,
    group_size: int,
    eps: float,
    fp8_min: float,
    fp8_max: float,
    scale_ue8m0: bool = False,
    fuse_silu_and_mul: bool = False,
    masked_m: Any = None,
    enable_v2: bool | None = None,
) -> None:
    """Writes input [..., K] to output_q, int8 or an 8-bit float, and a scale for each 128 neighbours to output_s [...,
    K / 128], float32, of any strides if input is a matrix.

    group_size is 128; scale_ue8m0, fuse_silu_and_mul and masked_m must be left out; the others change nothing.
    """
    if group_size != BLOCK:
        raise ValueError(f"group_size is {group_size}; {BLOCK} is served")
    for name, given in (("scale_ue8m0", scale_ue8m0), ("fuse_silu_and_mul", fuse_silu_and_mul), ("masked_m", masked_m)):
        if given is not None and given is not False:
            raise ValueError(f"{name} is given; plain float32 scales of all rows are served: leave it out")
    out = {"out": written_rows(output_q), "scale_out": written_rows(output_s)}
    _core.quantize(rows_of(input), output_q.dtype, "block_1x128", **out)


def topk_softmax(
    topk_weights: Any,
    topk_ids: Any,
    gating_output: Any,
    renormalize: bool = False,
    moe_softcapping: float = 0.0,
    correction_bias: Any = None,
) -> None:
    """Writes the best experts of gating_output [tokens, experts], and their softmax over all, or over the best if
    renormalize. correction_bias is added before the softmax, so that weights have it, too. moe_softcapping is 0.
    """
    if moe_softcapping != 0:
        raise ValueError(f"moe_softcapping is {moe_softcapping}; 0 is served: cap gating_output by tanh before")
    logits = gating_output if correction_bias is None else gating_output + correction_bias
    route_into(topk_weights, topk_ids, logits, renormalize)


def topk_sigmoid(
    topk_weights: Any, topk_ids: Any, gating_output: Any, renormalize: bool = False, correction_bias: Any = None
) -> None:
    """The same of the sigmoids; correction_bias, float32, is for the choice alone."""
    route_into(topk_weights, topk_ids, gating_output, renormalize, scoring_func="sigmoid", bias=correction_bias)
