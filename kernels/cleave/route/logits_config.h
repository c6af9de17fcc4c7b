// Everything about the kernel of router's logits that is fixed when it is compiled, and how it deals K.
#pragma once

#include "cleave/core/enums.h"
#include "cleave/core/math.h"

namespace cleave {

struct LogitsConfig {
  DType x = DType::bf16;
  DType weight = DType::f32;
  uint32_t tokens = 1;   // of a CTA
  uint32_t experts = 1;  // of a CTA
  bool vectors = true;   // lines are whole lanes' elements, aligned to their size
  bool static_weight = false;

  CLEAVE_HD friend constexpr bool operator==(const LogitsConfig&, const LogitsConfig&) = default;
};

/// K is dealt to as many parts as a CTA has warps, whole pieces side by side, and a piece's elements to lanes,
/// neighbours together: which lane adds up what follows from K alone.
inline constexpr uint32_t kLogitsWarps = 8;
inline constexpr uint32_t kLaneElements = 4;
inline constexpr uint32_t kPieceElements = 32 * kLaneElements;

/// Elements of a part; the last ones have fewer.
CLEAVE_HD constexpr uint32_t part_features(uint32_t features) {
  return ceil_div(features, kLogitsWarps * kPieceElements) * kPieceElements;
}

inline constexpr uint32_t kRegistersAhead = 80;

/// Pieces whose loads a lane has under way together: what leaves it its registers.
CLEAVE_HD constexpr uint32_t pieces_ahead(const LogitsConfig& config) {
  const uint32_t of_x = config.tokens * size_of(config.x), of_weight = config.experts * size_of(config.weight);
  const uint32_t words = (of_x + of_weight) * kLaneElements / 4;
  return min_of(max_of((kRegistersAhead - config.tokens * config.experts) / words, 1u), 8u);
}

}  // namespace cleave
