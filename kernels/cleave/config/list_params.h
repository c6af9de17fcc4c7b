// The operand of a grouped product whose rows (of B: columns) are those that a list names: a token's for each of the
// experts that it goes to. Its scales, which lie as its rows do, are found by the same list; what D's rows have of
// their own (bias, C, inputs of a function) is not.
#pragma once

#include "cleave/core/fast_divmod.h"

namespace cleave {

/// Row i of the product is row entries[i] / divisor.
struct ListParams {
  const int32_t* entries = nullptr;
  FastDivmod divisor;
  uint32_t rows = 0;  // of the operand; times the divisor at most 2^31 - 1
};

/// A row of zeros.
inline constexpr uint32_t kNoRow = 0xffffffffu;

/// The operand's row that is row `i` of the product: kNoRow where the list names none.
CLEAVE_HD uint32_t listed_row(const ListParams& p, uint32_t i) {
  const int32_t named = p.entries[i];
  if (named < 0) return kNoRow;
  const uint32_t row = p.divisor.quotient(uint32_t(named));
  return row < p.rows ? row : kNoRow;
}

/// Where the scale of the product's row `i` lies: that of a row of zeros is the first one's.
template <bool Listed>
CLEAVE_HD uint32_t scale_row(const ListParams& p, uint32_t i) {
  if (!Listed) return i;
  const uint32_t row = listed_row(p, i);
  return row == kNoRow ? 0 : row;
}

}  // namespace cleave
