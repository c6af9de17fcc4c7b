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
  bool finds_scales = false, ue8m0 = false;  // of D's lines of 128 columns
  bool vectors = true;                       // rows begin and end at multiples of 16 bytes of partial results
  bool pushed = false;         // vectors that each rank has of its own partial result alone, and sends (pushed.h)
  uint32_t strip_vectors = 0;  // pushed as a product's registers would be (strip.h), by CTAs of kStripThreads
  bool has_function = false;   // of the sum, in the kernel's source
  Gates gates = Gates::none;   // which two columns of the sum it joins
  const EpilogueFunction* function = nullptr;  // of the host alone

  CLEAVE_HD friend constexpr bool operator==(const FoldConfig&, const FoldConfig&) = default;
};

inline constexpr uint32_t kFoldThreads = kPushingThreads;
static_assert(kFoldThreads / 2 >= kMostRanks && kStripThreads >= kMostRanks);

/// Vectors of each partial result that a piece of D is made of: gates' and ups', or both in turn.
CLEAVE_HD constexpr uint32_t fold_vectors(const FoldConfig& c) {
  return c.gates == Gates::none ? 1 : 2;
}

/// How many a CTA has. Those that push have as many vectors as have a place there; and many ranks' vectors take
/// registers that more threads do not have.
CLEAVE_HD constexpr uint32_t fold_threads(const FoldConfig& c) {
  if (c.strip_vectors > 0) return kStripThreads;
  const bool few = (c.pushed && fold_vectors(c) > pushed_pieces(c.ranks)) || fold_vectors(c) * c.ranks > kMostRanks;
  return few ? kFoldThreads / 2 : kFoldThreads;
}

/// D's neighbours that a thread has at once: 16 bytes of each vector. They share a scale where that is found.
CLEAVE_HD constexpr uint32_t fold_elements(const FoldConfig& c) {
  return c.vectors || c.finds_scales ? 16 / size_of(c.partial) : 1;
}

/// Pieces of a row of D. Threads of a line of 128 columns are neighbours in a warp, whether or not all of it exists.
CLEAVE_HD constexpr uint32_t fold_pieces(const FoldConfig& c, uint32_t columns) {
  const uint32_t of_line = kScaleBlock / fold_elements(c);
  return c.finds_scales ? ceil_div(columns, kScaleBlock) * of_line : columns / fold_elements(c);
}

/// Pieces of a thread whose loads are under way together.
CLEAVE_HD constexpr uint32_t fold_ahead(const FoldConfig& c) {
  const uint32_t vectors = fold_vectors(c) * c.ranks;
  return vectors <= 2 ? 4 : vectors <= 4 ? 2 : 1;
}

/// Pieces that a thread pushes together.
CLEAVE_HD constexpr uint32_t fold_pushes(const FoldConfig& c) {
  return max_of(pushed_pieces(c.ranks) / fold_vectors(c), 1u);
}

inline constexpr uint32_t kMostPushingRanks = 8;

/// An exact sum, scaled as one GPU's epilogue does it (epilogue/epilogue.h).
CLEAVE_HD float scaled(int32_t sum, float scale_a, float scale_b) {
  return float(sum) * (scale_a * scale_b);
}

}  // namespace cleave
