// Kernels of the operations that are no products, some of each, as their plans for Hopper have them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cleave/device.h"
#include "cleave/lora.h"
#include "cleave/moe.h"
#include "cleave/quantize.h"
#include "cleave/route.h"
#include "cleave/router_logits.h"

namespace cleave {

class OtherSources {
 public:
  /// Equal ones once, in one order.
  std::vector<std::string> all() {
    for (const DType x : {DType::bf16, DType::f32}) {
      quantize(x);
      rows_of_experts(x);
      logits(x);
    }
    routes();
    adapters();
    return {sources_.begin(), sources_.end()};
  }

 private:
  void add(const auto& problem) {
    for (const std::string& source : plan(problem)->kernel_sources()) sources_.insert(source);
  }

  void quantize(DType x) {
    for (const auto granularity :
         {Granularity::tensor, Granularity::row, Granularity::block_1x128, Granularity::block_128x128}) {
      QuantizeProblem p{.rows = 4096, .cols = 7168, .granularity = granularity, .device = kPlanOnlyH100};
      const MatrixShape scales = scale_shape(granularity, p.rows, p.cols);
      p.x = {.dtype = x, .stride_row = p.cols};
      p.q = p.q_t = {.dtype = DType::e4m3, .stride_row = p.cols};
      p.scale = {.dtype = DType::f32, .stride_row = scales.cols};
      add(p);
      if (granularity == Granularity::block_128x128) {
        p.has_transpose = true;
        p.q_t.stride_row = p.rows;
        p.scale_t = {.dtype = DType::f32, .stride_row = scale_shape(granularity, p.cols, p.rows).cols};
      } else {
        p.given_scale = granularity == Granularity::tensor;
        p.norm = {.kind = Norm::rms_norm, .has_weight = true, .dtype = x};
        p.has_residual = true;
        p.residual = p.residual_out = p.x;
      }
      add(p);
    }
  }

  void rows_of_experts(DType x) {
    for (const auto operation : {MoeOperation::permute, MoeOperation::combine, MoeOperation::combine_backward}) {
      const MatrixLayout layout{.dtype = x, .stride_row = 2048};
      add(MoeProblem{.operation = operation,
                     .tokens = 4096,
                     .top_k = 8,
                     .experts = 64,
                     .columns = 2048,
                     .token = layout,
                     .row = layout,
                     .row_grad = layout,
                     .has_weights = operation == MoeOperation::combine_backward,
                     .device = kPlanOnlyH100});
    }
  }

  void logits(DType x) {
    add(RouterLogitsProblem{.tokens = 8,
                            .experts = 512,
                            .features = 6144,
                            .x = {.dtype = x, .stride_row = 6144, .alignment = 16},
                            .weight = {.dtype = DType::f32, .stride_row = 6144, .alignment = 16},
                            .device = kPlanOnlyH100});
  }

  void routes() {
    RouteProblem p{.tokens = 64,
                   .experts = 512,
                   .top_k = 8,
                   .logits = {.dtype = DType::f32, .stride_row = 512},
                   .device = kPlanOnlyH100};
    add(p);
    p.scoring_func = ScoringFunc::sigmoid;
    p.has_bias = true;
    p.n_group = 8;
    p.topk_group = 4;
    add(p);
  }

  void adapters() {
    for (const int64_t rank : {16, 64}) {
      const auto layout = [](int64_t lines, int64_t columns) {
        return MatrixLayout{
            .dtype = DType::bf16, .stride_row = columns, .stride_batch = lines * columns, .alignment = 16};
      };
      add(LoraProblem{.rows = 512,
                      .features = 4096,
                      .outputs = 1536,
                      .rank = rank,
                      .adapters = 8,
                      .x = layout(512, 4096),
                      .a = layout(rank, 4096),
                      .b = layout(1536, rank),
                      .out = layout(512, 1536),
                      .device = kPlanOnlyH100});
    }
  }

  std::set<std::string> sources_;
};

}  // namespace cleave
