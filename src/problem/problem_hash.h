// From a problem to a number: for maps of plans.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cleave/epilogue.h"
#include "cleave/fold.h"
#include "cleave/gemm.h"
#include "cleave/lora.h"
#include "cleave/moe.h"
#include "cleave/quantize.h"
#include "cleave/route.h"
#include "cleave/router_logits.h"

namespace cleave {

/// Mixes every field that distinguishes problems in practice; equality decides the rest.
struct ProblemHash {
  size_t operator()(const GemmProblem& p) const {
    Mix mix;
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
    return size_t(mix.hash);
  }

  size_t operator()(const QuantizeProblem& p) const {
    Mix mix;
    mix(uint64_t(p.rows) << 32 ^ uint64_t(p.cols));
    mix(uint64_t(p.x.stride_row) << 32 ^ uint64_t(p.q.stride_row) << 8 ^ uint64_t(p.q.alignment));
    mix(uint64_t(p.groups));
    mix(uint64_t(p.scale.stride_row) << 32 ^ uint64_t(p.scale.stride_col));
    mix(uint64_t(p.x.alignment) << 32 ^ uint64_t(p.x.dtype) << 28 ^ uint64_t(p.q.dtype) << 24 ^
        uint64_t(p.granularity) << 20 ^ uint64_t(p.given_scale) << 16 ^ uint64_t(p.symmetric) << 12 ^
        uint64_t(p.has_smooth) << 8 ^ uint64_t(p.has_transpose) << 4 ^ uint64_t(p.device + 2));
    if (p.norm.kind != Norm::none) {
      mix(uint64_t(p.norm.kind) << 16 ^ uint64_t(p.norm.dtype) << 12 ^ uint64_t(p.has_residual) << 8 ^
          uint64_t(p.has_normed) << 4 ^ uint64_t(p.norm.has_weight) << 1 ^ uint64_t(p.norm.has_bias));
    }
    return size_t(mix.hash);
  }

  size_t operator()(const MoeProblem& p) const {
    Mix mix;
    mix(uint64_t(p.tokens) << 32 ^ uint64_t(p.columns));
    mix(uint64_t(p.token.stride_row) << 32 ^ uint64_t(p.row.stride_row));
    mix(uint64_t(p.experts) << 32 ^ uint64_t(p.top_k));
    mix(uint64_t(p.operation) << 32 ^ uint64_t(p.token.dtype) << 28 ^ uint64_t(p.weights_dtype) << 24 ^
        uint64_t(p.has_weights) << 20 ^ uint64_t(p.wide_ids) << 16 ^ uint64_t(p.token.alignment) << 8 ^
        uint64_t(p.device + 2));
    return size_t(mix.hash);
  }

  size_t operator()(const LoraProblem& p) const {
    Mix mix;
    mix(uint64_t(p.rows) << 32 ^ uint64_t(p.features));
    mix(uint64_t(p.outputs) << 32 ^ uint64_t(p.adapters) << 8 ^ uint64_t(p.rank));
    for (const MatrixLayout* layout : {&p.x, &p.a, &p.b, &p.out})
      mix(uint64_t(layout->stride_batch) << 32 ^ uint64_t(layout->stride_row) << 8 ^ layout->alignment);
    mix(uint64_t(p.x.dtype) << 16 ^ uint64_t(p.wide_offs) << 8 ^ uint64_t(p.device + 3));
    return size_t(mix.hash);
  }

  size_t operator()(const FoldProblem& p) const {
    Mix mix;
    mix(uint64_t(p.rows) << 32 ^ uint64_t(p.columns));
    mix(uint64_t(p.most_rows) << 32 ^ uint64_t(p.ranks));
    for (const MatrixLayout* layout : {&p.partial, &p.c, &p.d})
      mix(uint64_t(layout->stride_row) << 16 ^ uint64_t(layout->dtype) << 8 ^ layout->alignment);
    mix(uint64_t(p.bias) << 32 ^ uint64_t(p.has_c) << 18 ^ uint64_t(p.has_bias) << 17 ^ uint64_t(p.has_scale_d) << 16 ^
        uint64_t(p.pushed) << 19 ^ uint64_t(p.device + 3));
    mix(uint64_t(p.scale_a.kind) << 24 ^ uint64_t(p.scale_a.stride_row) << 16 ^ uint64_t(p.scale_b.kind) << 8 ^
        uint64_t(p.scale_b.stride_row));
    mix(uint64_t(p.scale_out.stride_row) << 32 ^ uint64_t(p.scale_out.stride_k) << 8 ^ uint64_t(p.scale_out.kind) << 1 ^
        uint64_t(p.ue8m0_scale_out));
    mix(reinterpret_cast<uintptr_t>(p.function));
    return size_t(mix.hash);
  }

  size_t operator()(const RouteProblem& p) const {
    Mix mix;
    mix(uint64_t(p.tokens) << 32 ^ uint64_t(p.logits.stride_row));
    mix(uint64_t(p.experts) << 32 ^ uint64_t(p.top_k) << 16 ^ uint64_t(p.n_group) << 8 ^ uint64_t(p.topk_group));
    mix(uint64_t(p.logits.dtype) << 32 ^ uint64_t(p.logits.alignment) << 24 ^ uint64_t(p.scoring_func) << 20 ^
        uint64_t(p.has_bias) << 18 ^ uint64_t(p.group_score) << 17 ^ uint64_t(p.renormalize) << 16 ^
        uint64_t(p.device + 2));
    return size_t(mix.hash);
  }

  size_t operator()(const RouterLogitsProblem& p) const {
    Mix mix;
    mix(uint64_t(p.tokens) << 32 ^ uint64_t(p.experts));
    mix(uint64_t(p.features) << 32 ^ uint64_t(p.x.stride_row));
    mix(uint64_t(p.weight.stride_row) << 32 ^ uint64_t(p.x.dtype) << 28 ^ uint64_t(p.weight.dtype) << 24 ^
        uint64_t(p.x.alignment) << 16 ^ uint64_t(p.weight.alignment) << 8 ^ uint64_t(p.static_weight) << 7 ^
        uint64_t(p.device + 2));
    return size_t(mix.hash);
  }

 private:
  struct Mix {
    uint64_t hash = 0x9e3779b97f4a7c15ull;
    void operator()(uint64_t value) {
      hash = (hash ^ value) * 0xff51afd7ed558ccdull;
      hash ^= hash >> 32;
    }
  };
};

}  // namespace cleave
