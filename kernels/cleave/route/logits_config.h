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
  bool vectors = true;   // a lane's elements are aligned to their size
  bool static_weight = false;

  CLEAVE_HD friend constexpr bool operator==(const LogitsConfig&, const LogitsConfig&) = default;
};

/// Warps of a CTA. K is dealt to them in pieces in turn, and a piece's elements to lanes, neighbours together: which
/// lane adds up what follows from K alone.
inline constexpr uint32_t kLogitsWarps = 8;
inline constexpr uint32_t kLaneElements = 4;
inline constexpr uint32_t kPieceElements = 32 * kLaneElements;

/// Pieces whose loads a lane has under way together: what leaves it its registers.
CLEAVE_HD constexpr uint32_t pieces_ahead(const LogitsConfig& config) {
  return max_of(8 / max_of(config.tokens, config.experts), 1u);
}

}  // namespace cleave
