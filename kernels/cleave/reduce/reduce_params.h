// The one argument of the kernel that joins partial results, filled by the host for each launch and passed as a
// __grid_constant__. Strides count elements.
#pragma once

#include "cleave/core/enums.h"
#include "cleave/core/math.h"
#include "cleave/schedule/groups.h"

namespace cleave {

struct ReduceConfig {
  uint32_t group_capacity = 0;  // where rows (columns) of D are cut: groups that there is shared memory for

  CLEAVE_HD friend constexpr bool operator==(const ReduceConfig&, const ReduceConfig&) = default;
};

inline constexpr uint32_t kReduceThreads = 512;
inline constexpr uint32_t kMostReducedLines = 32;  // of a CTA
inline constexpr uint32_t kUnitsAtOnce = 8;        // of a thread: loads on their way together

/// Partial results [entries of the batch][units][lines], and what they are joined to: a value for each line, and for
/// each entry or for all of them together.
struct PartialResults {
  const float* partials = nullptr;
  float* results = nullptr;
  Reduction reduction = Reduction::sum;
  bool joins_entries = false;
  uint32_t entries = 0, units = 0, lines = 0;
  uint32_t units_of_step = 0;  // others than 0: entries are groups, whose units follow each other, so many for a tile
  // D's elements themselves: their order follows from their number alone, and a group's units lie where the group does,
  // so many for each of its rows (columns).
  bool of_elements = false, is_one = false;  // is_one: all of D is a line
  int64_t entry_stride = 0;
  int64_t result_stride = 0, result_entry_stride = 0;  // of results, to the next line's, and to the next entry's

  /// log2 of a CTA's lines: as few as have all of a line's units read at once, but those of whole sectors of 32 bytes.
  CLEAVE_HD constexpr uint32_t line_bits() const {
    if (of_elements) return is_one ? 0 : 3;
    if (lines == 1) return 0;
    uint32_t bits = 5;
    while (bits > 3 && units > kReduceThreads * kUnitsAtOnce >> bits) --bits;
    return bits;
  }
  /// CTAs that join them, for each entry that has results of its own.
  CLEAVE_HD constexpr uint32_t line_blocks() const { return ceil_div(lines, 1u << line_bits()); }
};

struct ReduceParams {
  PartialResults outputs[kMostEpilogueOutputs];  // blockIdx.y
  GroupParams groups;
  uint32_t group_step = 0;  // rows (columns) of a tile
};

}  // namespace cleave
