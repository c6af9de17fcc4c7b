// The mainloop of the CPU backend: one work unit's share of A @ B.
#pragma once

#include "cleave/gemm.h"
#include "cpu/micro_kernel.h"
#include "cpu/tiling.h"

namespace cleave::cpu {

/// What one thread works in.
struct alignas(64) Scratch {
  float a[kMaxTileM * kMaxTileK];
  float b[kMaxTileN * kMaxTileK];
  float sums[kMaxTileM * kMaxTileN];
  float share[kMaxTileM * kMaxTileN];  // cluster: one slice of the sums
};

class TileProduct {
 public:
  TileProduct(const GemmProblem& problem, const GemmArguments& arguments, const Tiling& tiling);

  /// sums[tile_m][tile_n] = the unit's K blocks of A @ B, in float32; zeros where the unit has
  /// none. Rows and columns beyond M and N are zeros.
  void operator()(const WorkUnit& unit, Scratch& scratch, float* sums) const;

 private:
  const GemmProblem& problem_;
  const GemmArguments& arguments_;
  const Tiling& tiling_;
  const MicroKernel multiply_;
};

}  // namespace cleave::cpu
