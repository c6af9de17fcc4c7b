// A bulk copy of some of a line's elements: TMA copies whole vectors of 16 bytes, here those that hold at least one of
// the elements. So it reads nothing in a vector where the operand has nothing, and asks for no alignment.
#pragma once

#include "cleave/config/scale_lines.h"

namespace cleave {

struct BulkCopy {
  uint64_t from;   // address
  uint32_t bytes;  // as many as it copies
  uint32_t ahead;  // bytes of it before the first element
};

/// The copy of `bytes`, at least one, from `address` on.
CLEAVE_HD constexpr BulkCopy bulk_copy(uint64_t address, uint32_t bytes) {
  const auto ahead = uint32_t(address % kBulkVector);
  return {address - ahead, round_up(ahead + bytes, kBulkVector), ahead};
}

}  // namespace cleave
