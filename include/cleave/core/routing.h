// How a router's logits become a choice of experts: shared by the public API, the planner and the kernels.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// A token's scores of experts: softmax over all of them, or sigmoid of each.
enum class ScoringFunc : uint8_t { softmax, sigmoid };

/// What a group of experts is chosen for: its best score (DeepSeek-V2), or the sum of its two best
/// (DeepSeek-V3).
enum class GroupScore : uint8_t { max, top2_sum };

}  // namespace cleave
