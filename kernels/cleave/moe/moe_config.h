// Everything about a kernel of moe/ that is fixed when it is compiled. What a kernel does not use
// keeps its default, so that equal kernels have equal configurations.
#pragma once

#include "cleave/core/enums.h"

namespace cleave {

struct MoeConfig {
  bool wide_ids = false;     // count, rank: expert ids are int64, else int32
  DType type = DType::bf16;  // quantize, combine, combine_backward: of the rows
  bool has_weights = false;  // combine
  DType weights = DType::f32;
  DType wide = DType::bf16;  // quantize: of the tokens
  uint32_t width = 16;       // bytes per access of a row: all rows are aligned to so many
  uint32_t lanes = 128;      // scatter: threads of a CTA that share a token; a power of two

  CLEAVE_HD friend constexpr bool operator==(const MoeConfig&, const MoeConfig&) = default;
};

/// Threads of a CTA; `count` and `rank` have one for each expert.
inline constexpr uint32_t kCountThreads = 1024;
inline constexpr uint32_t kRankThreads = 1024;
inline constexpr uint32_t kRowThreads = 128;

/// Chunks of slots, a CTA each. More would have CTAs read their counts for longer than they save.
inline constexpr uint32_t kMostChunks = 64;

/// Threads of `quantize` that share a scale.
inline constexpr uint32_t kScaleLanes = 8;

/// Accesses of one row that a thread of `scatter` holds.
inline constexpr uint32_t kScatterAccesses = 4;

}  // namespace cleave
