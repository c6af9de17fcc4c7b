// The mainloop of the CPU backend: one work tile's share of A @ B.
#pragma once

#include "cleave/gemm.h"
#include "cpu/micro_kernel.h"
#include "cpu/operands.h"
#include "cpu/parts.h"
#include "cpu/scratch.h"
#include "cpu/tiling.h"

namespace cleave::cpu {

/// Sums of integers are exact modulo 2^32.
inline float add(float x, float y) {
  return x + y;
}
inline int32_t add(int32_t x, int32_t y) {
  return int32_t(uint32_t(x) + uint32_t(y));
}

/// `Sum`: float, or int32_t where the problem's sums are integers.
template <class Sum>
class TileProduct {
 public:
  TileProduct(const GemmProblem& problem, const GemmArguments& arguments, const Tiling& tiling);

  /// sums[tile_m][tile_n] = the work tile's K blocks of A @ B, times the scales of blocks; zeros where
  /// the work tile has none. Rows and columns beyond M and N are zeros.
  void operator()(const WorkTile& work, Scratch<Sum>& scratch, Sum* sums) const;

 private:
  /// `k` elements of K from `first` on, for the micro-tile at (row, column) of D. `is_up`: 1 for the sums of ups.
  struct Step {
    uint32_t batch;
    int64_t row, column, first;
    uint32_t k, is_up;
    int64_t rows_end;  // of the tile
  };

  /// sums += the product of a K block's panels. `first`: the step of its first micro-tile.
  void multiply_block(const Step& first, uint32_t rows, uint32_t columns, const float* a, const float* b,
                      Sum* sums) const;

  /// sums += the step's product of two packed panels.
  void multiply(const Step& step, const float* a, const float* b, Sum* sums) const;

  const GemmProblem& problem_;
  const GemmArguments& arguments_;
  const Tiling& tiling_;
  const Operands operands_;
  ListParams listed_;  // where a list names A's rows
  const MicroKernel& micro_kernel_;
};

}  // namespace cleave::cpu
