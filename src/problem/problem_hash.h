// From a problem to a number: for maps of plans.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/mix.h"
#include "cleave/epilogue.h"
#include "cleave/gemm.h"

namespace cleave {

/// For any kind of problem that has a `mix_in`, which mixes every field that distinguishes problems in practice;
/// equality decides the rest.
struct ProblemHash {
  template <class Problem>
  size_t operator()(const Problem& problem) const {
    Mix mix;
    mix_in(problem, mix);
    return size_t(mix.hash);
  }
};

inline void mix_in(const GemmProblem& p, Mix& mix) {
  mix(uint64_t(p.m) << 32 ^ uint64_t(p.n));
  mix(uint64_t(p.k) << 16 ^ uint64_t(p.batch));
  for (const MatrixLayout* layout : {&p.a, &p.b, &p.d}) {
    mix(uint64_t(layout->stride_row) << 32 ^ uint64_t(layout->stride_col) << 8 ^ uint64_t(layout->dtype) << 4 ^
        layout->alignment);
  }
  mix(uint64_t(p.split_k_slices) << 32 ^ uint64_t(p.split_k_mode) << 24 ^ uint64_t(p.precision) << 20 ^
      uint64_t(p.kernel) << 16 ^ uint64_t(p.bias) << 8 ^ uint64_t(p.has_c) << 4 ^ uint64_t(p.device + 2) ^
      uint64_t(p.deterministic) << 40 ^ uint64_t(p.static_a) << 62 ^ uint64_t(p.static_b) << 63);
  const GroupLayout& groups = p.groups;
  mix(uint64_t(groups.expected_m));
  mix(uint64_t(groups.spacing) << 16 ^ uint64_t(groups.apart) << 8 ^ uint64_t(groups.dimension) << 6 ^
      uint64_t(groups.bounds) << 2 ^ uint64_t(groups.wide) << 1 ^ uint64_t(groups.zero_rest));
  if (p.gather.given) mix(uint64_t(p.gather.rows) << 32 ^ uint64_t(p.gather.divisor));
  mix(uint64_t(p.bias_stride_batch));
  for (const ScaleLayout* scale : {&p.scale_a, &p.scale_b, &p.scale_out}) {
    mix(uint64_t(scale->stride_row) << 32 ^ uint64_t(scale->stride_k) << 12 ^ uint64_t(scale->rows) << 4 ^
        uint64_t(scale->kind));
  }
  for (const WeightLayout* weights : {&p.weights_a, &p.weights_b}) {
    if (weights->format == WeightFormat::none) continue;
    mix(uint64_t(weights->group) << 32 ^ uint64_t(weights->scale_stride_k) << 8 ^ uint64_t(weights->has_zero) << 4 ^
        uint64_t(weights->format));
  }
  if (p.epilogue.function != nullptr) {
    mix(reinterpret_cast<uintptr_t>(p.epilogue.function));
    for (size_t i = 0; i < p.epilogue.function->inputs().size(); ++i) {
      const EpilogueLayout& input = p.epilogue.inputs[i];
      mix(uint64_t(input.stride) << 24 ^ uint64_t(input.stride_batch) << 16 ^ uint64_t(input.alignment) << 8 ^
          uint64_t(input.dtype) << 4 ^ uint64_t(input.shape) << 1 ^ uint64_t(input.order));
    }
  }
  const ConvLayout& conv = p.conv;
  if (conv.kind != Conv::none) {
    mix(uint64_t(conv.kind) << 4 ^ uint64_t(conv.division) << 8 ^ uint64_t(conv.images) << 32);
    for (const ConvAxis& axis : conv.axes) {
      mix(uint64_t(axis.size) << 32 ^ uint64_t(axis.filter) << 16 ^ uint64_t(axis.stride));
      mix(uint64_t(axis.pad_begin) << 32 ^ uint64_t(axis.pad_end) << 16 ^ uint64_t(axis.dilation));
    }
  }
}

}  // namespace cleave
