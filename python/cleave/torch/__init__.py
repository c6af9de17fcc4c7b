"""Cleave in PyTorch: operators, and layers for convolutions, 8-bit and 4-bit weights, and mixtures of experts.

    import cleave.torch
    d = torch.ops.cleave.gemm(a, b, bias)                     # differentiable
    d = torch.ops.cleave.grouped_gemm(rows, weights, offs)    # differentiable
    y = torch.ops.cleave.conv(x, w, bias, 2, 1)               # differentiable
    q, scale = torch.ops.cleave.quantize(x, torch.int8)
    d = torch.ops.cleave.scaled_gemm(q, weight.t(), scale, weight_scale)
    d = cleave.torch.gemm(a, b, epilogue=gelu_residual(bias=b1, scale=s, residual=r))    # differentiable
    cleave.torch.replace_convs(model)
    cleave.torch.replace_linears(model, "int8")
    cleave.torch.replace_linears(model, "int4")       # weights only
    cleave.torch.load_quantized(model, "folder")      # a checkpoint that is already in 8 or 4 bits
    fused = cleave.torch.fuse(model)
    cleave.torch.convert_to_float8_training(model)
    layer = cleave.torch.MoE(num_experts, top_k, features, hidden_features)
    y = cleave.torch.lora(x, a, b, offs, scale, y)    # low-rank adapters

The operators, on CUDA tensors (on torch's current stream) and on CPU tensors:

    gemm(a, b, bias=None, c=None, *, alpha, beta, activation, out_dtype, split_k_mode,
        split_k_slices)
    scaled_gemm(a, b, scale_a, scale_b, bias=None, out_dtype=None, use_fast_accum=False, *, c,
        alpha, beta, activation, scale_d, azp, azp_adj, split_k_mode, split_k_slices, static_b)
    mixed_gemm(a, packed, scales, zeros, out_features, group_size, bias=None, out_dtype=None, format="int4",
        global_scale=None, scale_a=None, *, c, alpha, beta, activation, split_k_mode, split_k_slices, static_b)
    mixed_grouped_gemm(a, packed, scales, zeros, out_features, group_size, offs, bias=None, out_dtype=None,
        format="int4", global_scale=None, scale_a=None)
    mixed_gemm.epilogue, mixed_grouped_gemm.epilogue: the same with epilogue, inputs, numbers=[], number_places=[],
        backward="" after group_size or offs, then bias=None, format="int4", global_scale=None, scale_a=None, c=None, *,
        alpha, beta, out_dtype, split_k_mode, split_k_slices, static_b -> D and other outputs
    gemm.epilogue(a, b, epilogue, inputs, numbers=[], number_places=[], backward="", bias=None, c=None, *,
        alpha, beta, out_dtype, split_k_mode, split_k_slices) -> D and other outputs
    scaled_gemm.epilogue(a, b, scale_a, scale_b, epilogue, inputs, numbers=[], number_places=[], backward="",
        bias=None, c=None, scale_d=None, azp=None, azp_adj=None, *, alpha, beta, out_dtype, use_fast_accum,
        split_k_mode, split_k_slices) -> D and other outputs
    grouped_gemm.epilogue(a, b, offs, epilogue, inputs, numbers=[], number_places=[], backward="", bias=None,
        scale_a=None, scale_b=None, c=None, indptr=None, starts=None, sizes=None, counts=None, *, alignment,
        alpha, beta, out_dtype, use_fast_accum, zero_rest, split_k_mode, split_k_slices) -> D and other outputs
    grouped_gemm(a, b, offs=None, bias=None, out_dtype=None, scale_a=None, scale_b=None,
        use_fast_accum=False, c=None, indptr=None, starts=None, sizes=None, counts=None, gather=None, *,
        alignment, alpha, beta, activation, zero_rest, split_k_mode, split_k_slices, top_k)
    conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, c=None, *, alpha,
        beta, activation, out_dtype, split_k_mode, split_k_slices)
    scaled_conv(input, weight, scale_a, scale_b, bias=None, stride=1, padding=0, dilation=1, groups=1,
        out_dtype=None, use_fast_accum=False, *, c, alpha, beta, activation, scale_d, split_k_mode,
        split_k_slices)
    conv_dgrad(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1,
        bias=None, c=None, *, alpha, beta, activation, out_dtype, split_k_mode, split_k_slices)
    conv_wgrad(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1, c=None,
        *, alpha, beta, out_dtype, split_k_mode, split_k_slices)
    conv.epilogue, conv_dgrad.epilogue, conv_wgrad.epilogue: the same with epilogue, inputs, numbers=[],
        number_places=[], backward="" after the operands, without activation -> D and other outputs
    lora.out(x, a, b, offs, scale=1.0, *, out): adds to out; see cleave.torch.lora
    quantize(x, dtype, granularity="row", smooth=None, *, scale_major) -> q, scale
    quantize_asymmetric(x, granularity="row", smooth=None) -> q, scale, zero
    quantize_static(x, scale, dtype, granularity="tensor", smooth=None, zero=None) -> q
    quantize_normed(x, weight, dtype, norm="rms_norm", eps=1e-6, granularity="row", bias=None,
                    zero_centered=False, *, scale_major) -> q, scale
    quantize_normed_sum(x, residual, weight, dtype, ...) -> q, scale, residual_out
    quantize_normed_asymmetric(x, weight, norm, eps, granularity, bias, zero_centered) -> q, scale, zero
    quantize_normed_sum_asymmetric(x, residual, weight, ...) -> q, scale, zero, residual_out
    quantize_normed_static(x, scale, weight, dtype, norm, eps, granularity="tensor", bias, zero_centered,
                           zero) -> q
    quantize_normed_sum_static(x, residual, scale, weight, dtype, ...) -> q, residual_out
    quantize_transposed(x, dtype, granularity="block_1x128", *, scale_major) -> q, scale, q_t, scale_t
    quantize_grouped(x, offs, dtype, *, scale_major) -> q, scale, q_t, scale_t, offs_t
    moe_router_logits(x, weight, static_weight=False) -> logits
    moe_route(logits, top_k, bias=None, scoring_func="softmax", n_group=1, topk_group=None, group_score="top2_sum",
              renormalize=True, routed_scaling_factor=1.0) -> weights, expert_ids
    moe_expert_offsets(expert_ids, num_experts) -> offs
    moe_sort_tokens(expert_ids, num_experts) -> offs, indices
    moe_permute(x, expert_ids, num_experts) -> rows, offs, indices
    moe_gather(x, indices) -> rows
    moe_unpermute(y, indices, weights=None, top_k=None) -> y
    moe_permute_quantized(x, expert_ids, num_experts, dtype) -> rows, scale, offs, indices
    moe_gather_quantized(x, indices, dtype) -> rows, scale

Arguments mean what they mean in `cleave.gemm`, `cleave.scaled_gemm`, `cleave.grouped_gemm`, `cleave.conv2d`,
`cleave.scaled_conv2d` and the gradients (here of one to three axes; padding has one number for all axes, one for
each, or two for each, those before the axes first), `cleave.quantize` (with transpose=True for quantize_transposed,
and with offs, in blocks of 1x128, for quantize_grouped) and `cleave.moe`. Results are new tensors. Products,
convolutions and quantisations, except the two just named, have an `out` form, torch.ops.cleave.gemm.out(...,
out=d), which writes to the given tensors and returns nothing. These are `out`; for quantize and quantize_asymmetric
also `scale_out` and `zero_out`; for the quantize_normed operators (which then take `residual` last) also
`residual_out` and `normed_out`; and for scaled_gemm and scaled_conv also `amax`. With gradients on, `out` forms
refuse tensors that require grad, as torch's own do.

float32 operands on a GPU are multiplied as torch's own switches say when the operator is called or
captured: gemm and grouped_gemm follow torch.backends.cuda.matmul.fp32_precision (by default "ieee",
at an eighth of the peak of "tf32"), convolutions torch.backends.cudnn.conv's ("tf32").
`cleave.torch.float32_precision` overrides both, and also offers "tf32x3" and "bf16x3".

An epilogue function is passed as its text (`epilogue`, and `backward` if it has one of its own), the tensors among
its inputs, the numbers among them, and the numbers' places among all inputs, in ascending order.
`cleave.torch.gemm`, `scaled_gemm`, `grouped_gemm`, `mixed_gemm`, `conv1d` to `conv3d` and `scaled_conv1d` to
`scaled_conv3d` take the function as `cleave.gemm` does, and pass these.

gemm has gradients for a, b, bias and c, and grouped_gemm for a, b and bias, as products of the same operators. The
convolutions have gradients for all their tensors, as each other. Epilogue functions of gemm, scaled_gemm,
grouped_gemm and the convolutions have gradients for their tensors as well. moe_permute, moe_gather, moe_unpermute and
moe_router_logits have gradients too, and moe_route for its logits.

All operators work under torch.compile(fullgraph=True) and in CUDA graphs. What `cleave` raises as ValueError
or TypeError is a RuntimeError here, as for torch's own operators. Eager calls take the least host time with positional
arguments, without a recorded gradient, and, if scaled_gemm, grouped_gemm or a convolution is passed keywords, under
the names scaled_gemm.full, grouped_gemm.full and so on, which save torch a search.
"""

import sys

from .. import _mistakes
from . import _operators

# isort: split
# What follows needs torch and its operators: without them, the import above says what to install.
from .._torch_precision import float32_precision
from ._batch_invariant import batch_invariant
from ._fusion.fuse import Fused, fuse
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, replace_convs
from .convolutions import conv1d, conv2d, conv3d, scaled_conv1d, scaled_conv2d, scaled_conv3d
from .experts import W8A8Experts
from .float8 import Float8Linear, convert_to_float8_training
from .fused import GatedMLP, NormProjections, Projection, W8A8SwiGLU
from .gate import Gate
from .grouped_linear import GroupedLinear
from .linear import W8A8Linear, replace_linears
from .loading import load_quantized
from .low_rank import lora
from .mixed_bytes_experts import W4A8Experts
from .mixed_bytes_linear import W4A8Linear
from .mixed_experts import W4A16Experts
from .mixed_linear import W4A16Linear
from .mixed_swiglu import W4A8SwiGLU, W4A16SwiGLU
from .moe import MoE
from .norm import Quantized, RMSNormQuantize
from .products import gemm, grouped_gemm, mixed_gemm, scaled_gemm

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Float8Linear",
    "Fused",
    "Gate",
    "GatedMLP",
    "GroupedLinear",
    "MoE",
    "NormProjections",
    "Projection",
    "Quantized",
    "RMSNormQuantize",
    "W4A8Experts",
    "W4A8Linear",
    "W4A8SwiGLU",
    "W4A16Experts",
    "W4A16Linear",
    "W4A16SwiGLU",
    "W8A8Experts",
    "W8A8Linear",
    "W8A8SwiGLU",
    "batch_invariant",
    "conv1d",
    "conv2d",
    "conv3d",
    "convert_to_float8_training",
    "float32_precision",
    "fuse",
    "gemm",
    "grouped_gemm",
    "load_quantized",
    "lora",
    "mixed_gemm",
    "replace_convs",
    "replace_linears",
    "scaled_conv1d",
    "scaled_conv2d",
    "scaled_conv3d",
    "scaled_gemm",
]

_operators.register()
_mistakes.explain(sys.modules[__name__])
