// Everything about the kernel that adds the ranks' partial results up that is fixed when it is compiled.
#pragma once

#include "cleave/core/element.h"
#include "cleave/peers/strip_sizes.h"

namespace cleave {

class EpilogueFunction;  // the host's

struct FoldConfig {
  uint32_t ranks = 2;
  DType partial = DType::bf16;  // f16, bf16, f32; i32: of 8 bits' products, with their scales
  DType c = DType::bf16;        // of what is added once, a matrix
  DType bias = DType::f32;      // and a row
  DType d = DType::bf16;        // of the result
  bool has_c = false, has_bias = false, has_scale_d = false;
  bool vectors = true;         // rows begin and end at multiples of 16 bytes of partial results
  bool pushed = false;         // vectors that each rank has of its own partial result alone, and sends (pushed.h)
  uint32_t strip_vectors = 0;  // pushed as a product's registers would be (strip.h), by CTAs of kStripThreads
  bool has_function = false;   // of the sum, in the kernel's source
  const EpilogueFunction* function = nullptr;  // of the host alone

  CLEAVE_HD friend constexpr bool operator==(const FoldConfig&, const FoldConfig&) = default;
};

inline constexpr uint32_t kFoldThreads = kPushingThreads;  // of a CTA
static_assert(kFoldThreads >= kMostRanks && kStripThreads >= kMostRanks);
CLEAVE_HD constexpr uint32_t fold_threads(const FoldConfig& c) {
  return c.strip_vectors > 0 ? kStripThreads : kFoldThreads;
}

/// Neighbours that a thread has at once: 16 bytes of each partial result.
CLEAVE_HD constexpr uint32_t fold_elements(const FoldConfig& c) {
  return c.vectors ? 16 / size_of(c.partial) : 1;
}

/// Pieces of a thread whose loads are under way together.
CLEAVE_HD constexpr uint32_t fold_ahead(const FoldConfig& c) {
  return c.ranks <= 2 ? 4 : c.ranks <= 4 ? 2 : 1;
}

inline constexpr uint32_t kMostPushingRanks = 8;

/// An exact sum, scaled as one GPU's epilogue does it (epilogue/epilogue.h).
CLEAVE_HD float scaled(int32_t sum, float scale_a, float scale_b) {
  return float(sum) * (scale_a * scale_b);
}

}  // namespace cleave
