// Everything about the kernel of router's logits that is fixed when it is compiled, and how it deals K.
#pragma once

#include "cleave/core/enums.h"
#include "cleave/core/math.h"

namespace cleave {

struct LogitsConfig {
  DType x = DType::bf16;
  DType weight = DType::f32;
  uint32_t tokens = 1;   // of a CTA
  uint32_t experts = 1;  // of a warp
  uint32_t cluster = 1;  // CTAs with the same tokens, 1, 2, 4 or 8: each has a part of K, of as many times more experts
  bool vectors = true;   // lines are whole lanes' elements, aligned to their size
  bool copied = false;   // weights go through shared memory, by a bulk copy of each line's part: multiples of 16 bytes
  bool static_weight = false;
  bool prefetch = false;  // weights that are not static are brought into L2 before the launch ahead is done

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

/// Logits of a warp, of its part of K.
CLEAVE_HD constexpr uint32_t warp_logits(const LogitsConfig& config) {
  return config.tokens * config.experts;
}

inline constexpr uint32_t kRegistersAhead = 80;

/// Pieces whose loads a lane has under way together: what leaves it its registers.
CLEAVE_HD constexpr uint32_t pieces_ahead(const LogitsConfig& config) {
  const uint32_t of_x = config.tokens * size_of(config.x), of_weight = config.experts * size_of(config.weight);
  const uint32_t words = (of_x + (config.copied ? 0 : of_weight)) * kLaneElements / 4;
  return min_of(max_of((kRegistersAhead - warp_logits(config)) / words, 1u), 8u);
}

/// Shared memory: eight parts of a warp's logits, what announces them to a cluster; then what announces copies, and
/// those.
CLEAVE_HD constexpr uint32_t logits_sum_bytes(const LogitsConfig& config) {
  return warp_logits(config) * kLogitsWarps * 4;
}
CLEAVE_HD constexpr uint32_t logits_copies_at(const LogitsConfig& config) {
  return round_up(logits_sum_bytes(config) + (1 + kLogitsWarps) * 8, 128u);
}
CLEAVE_HD constexpr uint32_t logits_shared_bytes(const LogitsConfig& config, uint32_t features) {
  if (!config.copied) return logits_sum_bytes(config) + (config.cluster > 1 ? 8 : 0);
  return logits_copies_at(config) + kLogitsWarps * config.experts * part_features(features) * size_of(config.weight);
}

}  // namespace cleave
