// What follows from where the operands of an epilogue function lie.
#pragma once

#include "cleave/problem.h"

namespace cleave {

/// Whether a scalar is a number that a call brings: an array's address is a multiple of its element.
constexpr bool is_number(const EpilogueLayout& layout) {
  return layout.shape == InputShape::scalar && layout.alignment < size_of(layout.dtype);
}

/// Whether columns 2i and 2i + 1 of a matrix of D's shape lie in one aligned word. `p`, if it is a convolution, is its
/// view as a product (conv_view); columns of fused classes are pixels' channels.
inline bool has_pairs(const EpilogueLayout& layout, const GemmProblem& p, bool fuses_classes) {
  const int64_t columns = fuses_classes ? p.conv.channels : p.n;
  const bool rows_begin_even = p.groups.dimension != Grouping::n && columns % 2 == 0 && layout.stride % 2 == 0;
  const bool batched = p.batch > 1 && layout.stride_batch != 0;
  return layout.shape == InputShape::matrix && layout.order == Order::row && rows_begin_even &&
         (!batched || layout.stride_batch % 2 == 0) && layout.alignment >= 2 * size_of(layout.dtype);
}

}  // namespace cleave
