// Everything about a quantising kernel that is fixed when it is compiled. Sizes and what the scales
// cover are not here: one kernel serves every shape, and most granularities.
#pragma once

#include "cleave/core/enums.h"

namespace cleave {

struct QuantizeConfig {
  DType x = DType::bf16;
  DType q = DType::i8;
  uint32_t width = 8;        // neighbours of x per access: all rows of x and q are aligned to so many
  bool given_scale = false;  // scales and zero points are read, not found
  bool symmetric = true;
  bool has_smooth = false;
  bool gated = false;  // x has both halves of rows, gates and then ups, which swiglu joins
  bool ue8m0 = false;  // scales are rounded up to powers of two

  // normed
  Norm norm = Norm::none;
  bool has_weight = false, has_bias = false;
  DType weight = DType::bf16;  // and of the bias
  bool has_residual = false;
  DType residual = DType::bf16;  // and of the sum that is written
  bool has_normed = false;
  bool summed = false;  // a launch before has written x + residual
  bool whole = true;    // registers hold all of a row
  bool blocks = false;  // a scale for each 128 neighbours; else one for the row

  // all but tiles: threads that share a group, a power of two up to a warp; 0: the whole CTA.
  uint32_t lanes = 32;
  uint32_t hold = 4;   // accesses per thread and group that stay in registers
  uint32_t batch = 1;  // groups of a thread whose loads are under way together

  // tiles
  bool square = true;    // one scale per tile; else one per row and, transposed, per column
  uint32_t width_t = 0;  // neighbours of the transpose per access; 0: no transpose
  bool grouped = false;  // bands of tiles are where find_bands says

  CLEAVE_HD friend constexpr bool operator==(const QuantizeConfig&, const QuantizeConfig&) = default;
};

/// Threads of a CTA: where groups belong to a warp or less, and of the other kernels.
inline constexpr uint32_t kLaneThreads = 128;
inline constexpr uint32_t kMeasureThreads = 512;
inline constexpr uint32_t kTileThreads = 512;
inline constexpr uint32_t kBandThreads = 1024;

/// Values that a thread keeps in registers: half of the 64 registers that let 1024 threads share a
/// SM.
inline constexpr uint32_t kHeldValues = 32;

/// The same where weight and bias are held beside.
inline constexpr uint32_t kHeldNormedValues = 16;

}  // namespace cleave
