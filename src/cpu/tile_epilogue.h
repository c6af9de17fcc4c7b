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

  /// Zeros for a range of the grouped dimension of D.
  void zero(GroupRange range) const;

 private:
  /// Stores `count` values of a row of D.
  template <class Value>
  void store_line(const Value* values, uint32_t count, uint32_t row, uint32_t column, uint32_t batch) const;
  void raise_amax(const float* values, uint32_t count) const;

  const GemmProblem& problem_;
  const Tiling& tiling_;
  EpilogueConfig config_;
  EpilogueParams params_;
  ScaleParams scales_a_, scales_b_;
};

}  // namespace cleave::cpu
