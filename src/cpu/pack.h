// Copies of operands in the order in which the micro-kernel reads them.
#pragma once

#include <cstdint>

#include "cleave/core/enums.h"

namespace cleave::cpu {

/// Neighbours along a dimension.
struct Span {
  uint32_t first, count;
};

/// A block of A or B: `count` rows of A or columns of B, and `k` elements of each. Strides count
/// elements.
struct Block {
  DType type;
  const void* data;
  int64_t offset;  // of its first element
  int64_t stride;  // from one row of A (column of B) to the next
  int64_t k_stride;
  uint32_t count, k;
  const uint32_t* rows = nullptr;  // which rows (columns) these are, from `offset` on, or kNoRow; else neighbours
};

/// Float32 panels of kMicroRows rows of A, out[panel][depth][row], of which the block fills the
/// first block.k of `depth`. The last panel is filled up with zeros.
void pack_a(const Block& block, uint32_t depth, float* out);

/// Float32 panels of kMicroColumns columns of B, out[panel][depth][column], likewise.
void pack_b(const Block& block, uint32_t depth, float* out);

}  // namespace cleave::cpu
