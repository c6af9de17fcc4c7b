// The epilogue of the CPU backend: from a tile's sums to D.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/epilogue/epilogue.h"
#include "cleave/gemm.h"
#include "cpu/tiling.h"

namespace cleave::cpu {

/// `Sum`: float, or int32_t where the problem's sums are integers.
template <class Sum>
class TileEpilogue {
 public:
  TileEpilogue(const GemmProblem& problem, const GemmArguments& arguments, const Tiling& tiling);

  /// Rows [begin, end) of a tile, as far as they lie in D. `sums`: of the whole tile.
  void operator()(const TileCoord& coord, uint32_t begin, uint32_t end, const Sum* sums) const;

  /// Zeros for a range of the grouped dimension of D, and of what a function makes beside it.
  void zero(GroupRange range) const;

 private:
  /// A matrix of D's shape.
  struct Target {
    DType dtype;
    Order order;
    void* data;
    int64_t stride, batch_stride;

    int64_t offset(uint32_t row, uint32_t column, uint32_t batch) const {
      return int64_t(batch) * batch_stride + epilogue_offset(order, stride, row, column);
    }
  };

  /// What the epilogue function takes and makes of a tile, a line at a time.
  struct FunctionLines;

  Target d() const { return {config_.d, config_.order, params_.d, params_.d_stride, params_.d_batch_stride}; }
  Target output(uint32_t beside_d) const;  // of the function's
  uint32_t outputs_beside_d() const;
  /// Stores `count` values of a row.
  template <class Value>
  static void store_line(const Target& target, const Value* values, uint32_t count, uint32_t row, uint32_t column,
                         uint32_t batch);
  /// The scale of `column` and its neighbours in the row.
  float& scale_out(uint32_t row, uint32_t column, uint32_t batch) const;
  /// Makes what D stores of up to 128 values of a row that share a scale, and writes that.
  void quantize(float* values, uint32_t count, uint32_t row, uint32_t column, uint32_t batch) const;
  void raise_amax(const float* values, uint32_t count) const;

  const GemmProblem& problem_;
  const Tiling& tiling_;
  const GemmArguments& arguments_;
  EpilogueConfig config_;
  EpilogueParams params_;
  ScaleParams scales_a_, scales_b_;
  ListParams listed_;  // where a list names A's rows
};

}  // namespace cleave::cpu
