// The tensors that say where groups begin and end.
#pragma once

#include <optional>

#include "operands/gemm_operands.h"

namespace cleave {

/// The groups of a dimension, which the other tensors determine.
struct DescribedGroups {
  GroupLayout layout;  ///< `counts` without an alignment: the spacing is left to be set
  int64_t count = 0;   ///< of groups
  const void* offsets = nullptr;
  const void* sizes = nullptr;
};

/// nullopt if no tensor of bounds is given. `device` is a's. Throws Error for tensors that are not bounds, and unless
/// they are exactly one description of the groups.
std::optional<DescribedGroups> read_bounds(const GemmTensors& tensors, std::optional<int64_t> alignment, int device);

/// What GroupLayout::expected_m is to be for the number that a caller expects, of groups whose dimension, count and
/// total are those of `problem`: up to an eighth more, so that few plans are made; 0 where groups fill what there is.
/// Throws Error if M is not grouped, or for less than one row.
int64_t read_expected_m(int64_t expected, const GemmProblem& problem);

}  // namespace cleave
