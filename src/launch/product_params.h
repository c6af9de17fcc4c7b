// The parameters of a kernel that follow from its problem, and those that a launch brings.
#pragma once

#include "cleave/config/gemm_params.h"
#include "launch/product.h"

namespace cleave {

/// All but pointers, factors, the schedule and the tensor maps. The problem is as the kernel reads
/// it: transposed if the kernel is, and a convolution's as conv_view makes it.
inline void set_problem(const GemmConfig& c, const GemmProblem& p, GemmParams& params) {
  const auto strided = [](Major major, int64_t k, int64_t other) { return major == Major::k ? other : k; };
  params.a = {nullptr, strided(c.operands.a_major, p.a.stride_col, p.a.stride_row), p.a.stride_batch};
  params.b = {nullptr, strided(c.operands.b_major, p.b.stride_row, p.b.stride_col), p.b.stride_batch};
  params.size = {uint32_t(p.m), uint32_t(p.n), uint32_t(p.k)};
  params.gates = gate_columns(p);
  params.batched_a = p.batch > 1 && p.a.stride_batch != 0;
  params.batched_b = p.batch > 1 && p.b.stride_batch != 0;
  params.leaves_first =
      leaves_first(c, uint32_t(p.m), uint32_t(p.n), p.batch > 1 && !params.batched_a, p.batch > 1 && !params.batched_b);
  params.scales_a = {nullptr, p.scale_a.stride_row, p.scale_a.stride_k, p.scale_a.stride_batch};
  params.scales_b = {nullptr, p.scale_b.stride_row, p.scale_b.stride_k, p.scale_b.stride_batch};
  if (has_weights(c)) {
    const int64_t group = p.weights_a.group;
    params.weights = {nullptr,
                      nullptr,
                      uint32_t(p.weights_a.scale_stride_k),
                      p.weights_a.scale_stride_batch,
                      uint32_t(ceil_div(p.k, group)),
                      FastDivmod(uint32_t(ceil_div<int64_t>(group, c.tile.k)))};
  }
  params.groups = group_params(p);
  params.list = list_params(p);
  EpilogueParams& e = params.epilogue;
  const bool row = c.epilogue.order == Order::row;
  e.d_stride = row ? p.d.stride_row : p.d.stride_col;
  e.c_stride = row ? p.c.stride_row : p.c.stride_col;
  e.d_batch_stride = p.d.stride_batch;
  e.c_batch_stride = p.c.stride_batch;
  e.bias_batch_stride = p.bias_stride_batch;
  e.scale_out_row_stride = p.scale_out.stride_row;
  e.scale_out_block_stride = p.scale_out.stride_k;
  e.scale_out_batch_stride = p.scale_out.stride_batch;
  const FunctionConfig& function = c.epilogue.function;
  const auto place = [](const EpilogueLayout& layout) {
    return FunctionOperand{nullptr, layout.stride, layout.stride_batch};
  };
  for (uint32_t i = 0; i < function.inputs; ++i) e.inputs[i] = place(p.epilogue.inputs[i]);
  for (uint32_t i = 0; i < function.outputs; ++i) e.outputs[i] = place(p.epilogue.outputs[i]);
}

/// Pointers and factors. The arguments are as the kernel reads them, as the problem above.
inline void set_arguments(const GemmConfig& c, const GemmArguments& x, GemmParams& params) {
  params.a.data = x.a;
  params.b.data = x.b;
  if (x.a == x.b) params.leaves_first = {};  // X^T X: the other operand's tiles read it again
  params.scales_a.data = x.scale_a;
  params.scales_b.data = x.scale_b;
  params.weights.scales = x.weight_scale;
  params.weights.zeros = x.weight_zero;
  params.groups.offsets = x.group_offsets;
  params.groups.sizes = x.group_sizes;
  params.list.entries = x.gather;
  EpilogueParams& e = params.epilogue;
  e.alpha = x.alpha * weight_factor(c);
  e.beta = x.beta;
  e.d = x.d;
  e.c = x.c;
  e.bias = x.bias;
  e.zero_a = x.zero_a;
  e.zero_b = x.zero_b;
  e.scale_d = x.scale_d;
  e.amax = x.amax;
  e.scale_out = x.scale_out;
  const FunctionConfig& function = c.epilogue.function;
  for (uint32_t i = 0; i < function.inputs; ++i) {
    e.inputs[i].data = const_cast<void*>(x.epilogue_inputs[i].data);
    e.inputs[i].value = x.epilogue_inputs[i].value;
  }
  for (uint32_t i = 0; i < function.outputs; ++i) e.outputs[i].data = x.epilogue_outputs[i];
}

}  // namespace cleave
