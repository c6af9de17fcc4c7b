"""DeepGEMM's functions on Hopper: products dense, grouped and by einsum, layouts of scales, casts and settings.

What Cleave has not is in `REFUSED`, with the reason; reading such a name raises AttributeError that says it.
"""

from __future__ import annotations

from ._deep_gemm_casts import per_block_cast_to_fp8, per_token_cast_to_fp8
from ._deep_gemm_dense import (
    bf16_gemm_nn,
    bf16_gemm_nt,
    bf16_gemm_tn,
    bf16_gemm_tt,
    cublaslt_gemm_nn,
    cublaslt_gemm_nt,
    cublaslt_gemm_tn,
    cublaslt_gemm_tt,
    fp8_gemm_nn,
    fp8_gemm_nt,
    fp8_gemm_nt_skip_head_mid,
    fp8_gemm_tn,
    fp8_gemm_tt,
)
from ._deep_gemm_einsum import einsum, fp8_einsum
from ._deep_gemm_k_grouped import (
    k_grouped_bf16_gemm_tn_contiguous,
    k_grouped_fp8_gemm_nt_contiguous,
    k_grouped_fp8_gemm_tn_contiguous,
)
from ._deep_gemm_layout import (
    align,
    ceil_div,
    get_mk_alignment_for_contiguous_layout,
    get_mn_major_tma_aligned_tensor,
    get_theoretical_mk_alignment_for_contiguous_layout,
    get_tma_aligned_size,
    set_mk_alignment_for_contiguous_layout,
    transform_sf_into_required_layout,
)
from ._deep_gemm_m_grouped import (
    m_grouped_bf16_gemm_nn_contiguous,
    m_grouped_bf16_gemm_nt_contiguous,
    m_grouped_bf16_gemm_nt_masked,
    m_grouped_fp8_gemm_nn_contiguous,
    m_grouped_fp8_gemm_nt_contiguous,
    m_grouped_fp8_gemm_nt_masked,
)
from ._deep_gemm_settings import (
    get_num_sms,
    get_pdl,
    get_tc_util,
    set_block_size_multiple_of,
    set_ignore_compile_dims,
    set_num_sms,
    set_pdl,
    set_tc_util,
)
from ._refused import refusing

# Other names of DeepGEMM's for the same; those with fp4 are served for operands of 8 bits, as the others are.
fp8_fp4_gemm_nt, fp8_fp4_gemm_nn = fp8_gemm_nt, fp8_gemm_nn
fp8_fp4_gemm_tn, fp8_fp4_gemm_tt = fp8_gemm_tn, fp8_gemm_tt
m_grouped_fp8_fp4_gemm_nt_contiguous = m_grouped_fp8_gemm_nt_contiguous
m_grouped_fp8_fp4_gemm_nn_contiguous = m_grouped_fp8_gemm_nn_contiguous
m_grouped_fp8_fp4_gemm_nt_masked = m_grouped_fp8_gemm_nt_masked
get_m_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
fp8_m_grouped_gemm_nt_masked = m_grouped_fp8_gemm_nt_masked
bf16_m_grouped_gemm_nt_masked = m_grouped_bf16_gemm_nt_masked

_FP4 = "elements of 4 bits"
_ATTENTION = "scores of attention, no product of matrices alone"
_MEGA = "a whole layer with communication in one kernel, for Blackwell and NVLink"
_UE8M0 = "packed UE8M0 scales are Blackwell's; on Hopper scales are float32"

REFUSED = {
    "per_token_cast_to_fp4": _FP4,
    "transpose_packed_fp4": _FP4,
    "cast_back_from_fp4": _FP4,
    "fp8_fp4_mqa_logits": _ATTENTION,
    "fp8_fp4_paged_mqa_logits": _ATTENTION,
    "fp8_mqa_logits": _ATTENTION,
    "fp8_paged_mqa_logits": _ATTENTION,
    "get_paged_mqa_logits_metadata": _ATTENTION,
    "tf32_hc_prenorm_gemm": "bfloat16 times float32, with sums of squares beside; no kernel multiplies such a pair",
    "SymmBuffer": _MEGA,
    "get_symm_buffer_for_mega_moe": _MEGA,
    "transform_weights_for_mega_moe": _MEGA,
    "fp8_fp4_mega_moe": _MEGA,
    "bf16_mega_moe": _MEGA,
    "get_mn_major_tma_aligned_packed_ue8m0_tensor": _UE8M0,
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor": _UE8M0,
    "ceil_to_ue8m0": _UE8M0,
    "pack_ue8m0_to_int": _UE8M0,
    "unpack_ue8m0_from_int": _UE8M0,
    "per_channel_cast_to_fp8": 'cleave.quantize(x, "float8_e4m3fn", "block_1x128", transpose=True) quantises x.T, too',
    "per_custom_dims_cast_to_fp8": "cleave.quantize has tensors, rows and blocks",
    "init_dist": "torch.distributed does that",
    "uneven_all_gather": "torch.distributed does that",
}

__getattr__ = refusing(__name__, REFUSED)

__all__ = [
    "align",
    "bf16_gemm_nn",
    "bf16_gemm_nt",
    "bf16_gemm_tn",
    "bf16_gemm_tt",
    "bf16_m_grouped_gemm_nt_masked",
    "ceil_div",
    "cublaslt_gemm_nn",
    "cublaslt_gemm_nt",
    "cublaslt_gemm_tn",
    "cublaslt_gemm_tt",
    "einsum",
    "fp8_einsum",
    "fp8_fp4_gemm_nn",
    "fp8_fp4_gemm_nt",
    "fp8_fp4_gemm_tn",
    "fp8_fp4_gemm_tt",
    "fp8_gemm_nn",
    "fp8_gemm_nt",
    "fp8_gemm_nt_skip_head_mid",
    "fp8_gemm_tn",
    "fp8_gemm_tt",
    "fp8_m_grouped_gemm_nt_masked",
    "get_k_alignment_for_contiguous_layout",
    "get_m_alignment_for_contiguous_layout",
    "get_mk_alignment_for_contiguous_layout",
    "get_mn_major_tma_aligned_tensor",
    "get_num_sms",
    "get_pdl",
    "get_tc_util",
    "get_theoretical_mk_alignment_for_contiguous_layout",
    "get_tma_aligned_size",
    "k_grouped_bf16_gemm_tn_contiguous",
    "k_grouped_fp8_gemm_nt_contiguous",
    "k_grouped_fp8_gemm_tn_contiguous",
    "m_grouped_bf16_gemm_nn_contiguous",
    "m_grouped_bf16_gemm_nt_contiguous",
    "m_grouped_bf16_gemm_nt_masked",
    "m_grouped_fp8_fp4_gemm_nn_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_contiguous",
    "m_grouped_fp8_fp4_gemm_nt_masked",
    "m_grouped_fp8_gemm_nn_contiguous",
    "m_grouped_fp8_gemm_nt_contiguous",
    "m_grouped_fp8_gemm_nt_masked",
    "per_block_cast_to_fp8",
    "per_token_cast_to_fp8",
    "set_block_size_multiple_of",
    "set_ignore_compile_dims",
    "set_mk_alignment_for_contiguous_layout",
    "set_num_sms",
    "set_pdl",
    "set_tc_util",
    "transform_sf_into_required_layout",
]
