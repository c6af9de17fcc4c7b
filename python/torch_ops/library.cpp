// torch.ops.cleave: the schemas, and the functions behind them.
//
// The `out` forms return nothing: an operator that returns its argument cannot be traced by every
// torch that this builds for. Arguments that autograd differentiates are not keyword-only, since it
// finds them by their position; of an operator that has gradients no tensor may be keyword-only.
//
// In eager calls torch looks up, by name, each argument that has no position in the call, and pays
// for a dict if there is a keyword. So what models call most has few arguments, none of them
// keyword-only: scaled_gemm, grouped_gemm and convolutions, which leave the rarer ones to their
// overloads `full`.
// torch takes the first overload that fits, in the order of definition.
#include "ops.h"

STABLE_TORCH_LIBRARY(cleave, m) {
  m.def(
      "gemm(Tensor a, Tensor b, Tensor? bias=None, Tensor? c=None, *, float alpha=1.0, "
      "float? beta=None, str activation='none', ScalarType? out_dtype=None, "
      "str split_k_mode='auto', int? split_k_slices=None) -> Tensor");
  m.def(
      "gemm.out(Tensor a, Tensor b, Tensor? bias=None, Tensor? c=None, *, float alpha=1.0, "
      "float? beta=None, str activation='none', str split_k_mode='auto', "
      "int? split_k_slices=None, Tensor(a!) out) -> ()");
  m.def(
      "scaled_gemm(Tensor a, Tensor b, Tensor? scale_a, Tensor? scale_b, Tensor? bias=None, "
      "ScalarType? out_dtype=None, bool use_fast_accum=False) -> Tensor");
  m.def(
      "scaled_gemm.full(Tensor a, Tensor b, Tensor? scale_a, Tensor? scale_b, Tensor? bias=None, "
      "ScalarType? out_dtype=None, bool use_fast_accum=False, *, Tensor? c=None, "
      "float alpha=1.0, float? beta=None, str activation='none', Tensor? scale_d=None, "
      "Tensor? azp=None, Tensor? azp_adj=None, str split_k_mode='auto', "
      "int? split_k_slices=None) -> Tensor");
  m.def(
      "scaled_gemm.out(Tensor a, Tensor b, Tensor? scale_a, Tensor? scale_b, Tensor? bias=None, "
      "bool use_fast_accum=False, *, Tensor? c=None, float alpha=1.0, float? beta=None, "
      "str activation='none', Tensor? scale_d=None, Tensor? azp=None, Tensor? azp_adj=None, "
      "str split_k_mode='auto', int? split_k_slices=None, Tensor(a!) out, "
      "Tensor(b!)? amax=None) -> ()");
  m.def(
      "grouped_gemm(Tensor a, Tensor b, Tensor? offs=None, Tensor? bias=None, "
      "ScalarType? out_dtype=None, Tensor? scale_a=None, Tensor? scale_b=None, "
      "bool use_fast_accum=False) -> Tensor");
  m.def(
      "grouped_gemm.full(Tensor a, Tensor b, Tensor? offs=None, Tensor? bias=None, "
      "ScalarType? out_dtype=None, Tensor? scale_a=None, Tensor? scale_b=None, "
      "bool use_fast_accum=False, Tensor? c=None, Tensor? indptr=None, Tensor? starts=None, "
      "Tensor? sizes=None, Tensor? counts=None, *, int? alignment=None, float alpha=1.0, "
      "float? beta=None, str activation='none', bool? zero_rest=None, "
      "str split_k_mode='auto', int? split_k_slices=None) -> Tensor");
  m.def(
      "grouped_gemm.out(Tensor a, Tensor b, Tensor? offs=None, Tensor? bias=None, "
      "Tensor? scale_a=None, Tensor? scale_b=None, bool use_fast_accum=False, "
      "Tensor? c=None, Tensor? indptr=None, Tensor? starts=None, Tensor? sizes=None, "
      "Tensor? counts=None, *, int? alignment=None, float alpha=1.0, float? beta=None, "
      "str activation='none', bool? zero_rest=None, str split_k_mode='auto', "
      "int? split_k_slices=None, Tensor(a!) out) -> ()");
  m.def(
      "conv(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, "
      "int[1] dilation=1, int groups=1) -> Tensor");
  m.def(
      "conv.full(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, "
      "int[1] padding=0, int[1] dilation=1, int groups=1, Tensor? c=None, *, float alpha=1.0, "
      "float? beta=None, str activation='none', ScalarType? out_dtype=None, "
      "str split_k_mode='auto', int? split_k_slices=None) -> Tensor");
  m.def(
      "conv.out(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, "
      "int[1] padding=0, int[1] dilation=1, int groups=1, Tensor? c=None, *, float alpha=1.0, "
      "float? beta=None, str activation='none', str split_k_mode='auto', "
      "int? split_k_slices=None, Tensor(a!) out) -> ()");
  m.def(
      "conv_dgrad(SymInt[] input_size, Tensor weight, Tensor grad_output, int[1] stride=1, "
      "int[1] padding=0, int[1] dilation=1, int groups=1, Tensor? bias=None) -> Tensor");
  m.def(
      "conv_dgrad.full(SymInt[] input_size, Tensor weight, Tensor grad_output, int[1] stride=1, "
      "int[1] padding=0, int[1] dilation=1, int groups=1, Tensor? bias=None, Tensor? c=None, *, "
      "float alpha=1.0, float? beta=None, str activation='none', ScalarType? out_dtype=None, "
      "str split_k_mode='auto', int? split_k_slices=None) -> Tensor");
  m.def(
      "conv_dgrad.out(SymInt[] input_size, Tensor weight, Tensor grad_output, int[1] stride=1, "
      "int[1] padding=0, int[1] dilation=1, int groups=1, Tensor? bias=None, Tensor? c=None, *, "
      "float alpha=1.0, float? beta=None, str activation='none', str split_k_mode='auto', "
      "int? split_k_slices=None, Tensor(a!) out) -> ()");
  m.def(
      "conv_wgrad(Tensor input, SymInt[] weight_size, Tensor grad_output, int[1] stride=1, "
      "int[1] padding=0, int[1] dilation=1, int groups=1) -> Tensor");
  m.def(
      "conv_wgrad.full(Tensor input, SymInt[] weight_size, Tensor grad_output, int[1] stride=1, "
      "int[1] padding=0, int[1] dilation=1, int groups=1, Tensor? c=None, *, float alpha=1.0, "
      "float? beta=None, ScalarType? out_dtype=None, str split_k_mode='auto', "
      "int? split_k_slices=None) -> Tensor");
  m.def(
      "conv_wgrad.out(Tensor input, SymInt[] weight_size, Tensor grad_output, int[1] stride=1, "
      "int[1] padding=0, int[1] dilation=1, int groups=1, Tensor? c=None, *, float alpha=1.0, "
      "float? beta=None, str split_k_mode='auto', int? split_k_slices=None, "
      "Tensor(a!) out) -> ()");
  m.def(
      "quantize(Tensor x, ScalarType dtype, str granularity='row', Tensor? smooth=None, *, "
      "str scale_major='k') -> (Tensor, Tensor)");
  m.def(
      "quantize.out(Tensor x, str granularity='row', Tensor? smooth=None, *, Tensor(a!) out, "
      "Tensor(b!) scale_out) -> ()");
  m.def(
      "quantize_asymmetric(Tensor x, str granularity='row', Tensor? smooth=None) "
      "-> (Tensor, Tensor, Tensor)");
  m.def(
      "quantize_asymmetric.out(Tensor x, str granularity='row', Tensor? smooth=None, *, "
      "Tensor(a!) out, Tensor(b!) scale_out, Tensor(c!) zero_out) -> ()");
  m.def(
      "quantize_static(Tensor x, Tensor scale, ScalarType dtype, str granularity='tensor', "
      "Tensor? smooth=None, Tensor? zero=None) -> Tensor");
  m.def(
      "quantize_static.out(Tensor x, Tensor scale, str granularity='tensor', "
      "Tensor? smooth=None, Tensor? zero=None, *, Tensor(a!) out) -> ()");
  m.def(
      "quantize_grouped(Tensor x, Tensor offs, ScalarType dtype, *, str scale_major='k') "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def("moe_expert_offsets(Tensor expert_ids, int num_experts) -> Tensor");
  m.def("moe_sort_tokens(Tensor expert_ids, int num_experts) -> (Tensor, Tensor)");
  m.def("moe_permute(Tensor x, Tensor expert_ids, int num_experts) -> (Tensor, Tensor, Tensor)");
  m.def("moe_gather(Tensor x, Tensor indices) -> Tensor");
  m.def("moe_unpermute(Tensor y, Tensor indices, Tensor? weights=None, int? top_k=None) -> Tensor");
  m.def(
      "moe_unpermute_backward(Tensor grad, Tensor y, Tensor indices, Tensor weights) "
      "-> (Tensor, Tensor)");
}

namespace cleave::torch_ops {
namespace {

/// One set of functions: tensors say whether they are on the CPU or a GPU.
void implement(torch::stable::detail::StableLibrary& m) {
  m.impl("gemm", TORCH_BOX(&gemm));
  m.impl("gemm.out", TORCH_BOX(&gemm_out));
  m.impl("scaled_gemm", TORCH_BOX(&scaled_gemm));
  m.impl("scaled_gemm.full", TORCH_BOX(&scaled_gemm_full));
  m.impl("scaled_gemm.out", TORCH_BOX(&scaled_gemm_out));
  m.impl("grouped_gemm", TORCH_BOX(&grouped_gemm));
  m.impl("grouped_gemm.full", TORCH_BOX(&grouped_gemm_full));
  m.impl("grouped_gemm.out", TORCH_BOX(&grouped_gemm_out));
  m.impl("conv", TORCH_BOX(&conv));
  m.impl("conv.full", TORCH_BOX(&conv_full));
  m.impl("conv.out", TORCH_BOX(&conv_out));
  m.impl("conv_dgrad", TORCH_BOX(&conv_dgrad));
  m.impl("conv_dgrad.full", TORCH_BOX(&conv_dgrad_full));
  m.impl("conv_dgrad.out", TORCH_BOX(&conv_dgrad_out));
  m.impl("conv_wgrad", TORCH_BOX(&conv_wgrad));
  m.impl("conv_wgrad.full", TORCH_BOX(&conv_wgrad_full));
  m.impl("conv_wgrad.out", TORCH_BOX(&conv_wgrad_out));
  m.impl("quantize", TORCH_BOX(&quantize));
  m.impl("quantize.out", TORCH_BOX(&quantize_out));
  m.impl("quantize_asymmetric", TORCH_BOX(&quantize_asymmetric));
  m.impl("quantize_asymmetric.out", TORCH_BOX(&quantize_asymmetric_out));
  m.impl("quantize_static", TORCH_BOX(&quantize_static));
  m.impl("quantize_static.out", TORCH_BOX(&quantize_static_out));
  m.impl("quantize_grouped", TORCH_BOX(&quantize_grouped));
  m.impl("moe_expert_offsets", TORCH_BOX(&moe_expert_offsets));
  m.impl("moe_sort_tokens", TORCH_BOX(&moe_sort_tokens));
  m.impl("moe_permute", TORCH_BOX(&moe_permute));
  m.impl("moe_gather", TORCH_BOX(&moe_gather));
  m.impl("moe_unpermute", TORCH_BOX(&moe_unpermute));
  m.impl("moe_unpermute_backward", TORCH_BOX(&moe_unpermute_backward));
}

}  // namespace
}  // namespace cleave::torch_ops

STABLE_TORCH_LIBRARY_IMPL(cleave, CPU, m) {
  cleave::torch_ops::implement(m);
}
STABLE_TORCH_LIBRARY_IMPL(cleave, CUDA, m) {
  cleave::torch_ops::implement(m);
}
