// A k block of float32 operands, multiplied as they are by plain multiply-adds: tensor cores would round
// them to TF32. A thread has the sums that mma.sync would give it (fragment.h), rows 8 apart and pairs
// of columns, so everything after the mainloop is the same.
//
// With 8 rows and 8 columns of a tile of 128 x 128, a thread adds 16 products for each 16 bytes that it
// reads of shared memory, where both operands are contiguous along K. The swizzle keeps a warp's reads
// free of bank conflicts.
#pragma once

#include "cleave/config/loads.h"
#include "cleave/core/multiply_add.h"
#include "cleave/memory/swizzle.h"
#include "cleave/ptx/shared.h"
#include "cleave/tile/fragment.h"

namespace cleave {

/// Elements of K that are read at a time: 16 bytes of a line that is contiguous along K.
inline constexpr uint32_t kFmaDepth = 4;

/// `Lines` neighbouring lines of an operand (rows of A, columns of B), 1 or 2, from `line` on: their
/// elements from `k` on.
template <GemmConfig C, Major M, uint32_t Lines>
CLEAVE_DEVICE void load_lines(uint32_t stage, uint32_t line, uint32_t k, float (&v)[kFmaDepth][Lines]) {
  constexpr uint32_t kElement = size_of(C.operands.a), kAtom = atom_elements(C.operands.a);
  if constexpr (M == Major::k) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Lines; ++i) {
      uint32_t along[kFmaDepth];
      ptx::load_shared_128(stage + swizzle(line + i, k * kElement), along);
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kFmaDepth; ++j) v[j][i] = __uint_as_float(along[j]);
    }
  } else {
    const uint32_t part = stage + line / kAtom * C.tile.k * 128, across = line % kAtom * kElement;
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kFmaDepth; ++j) {
      const uint32_t at = part + swizzle(k + j, across);
      if constexpr (Lines == 2) {
        ptx::load_shared_pair(at, v[j]);
      } else {
        v[j][0] = __uint_as_float(ptx::load_shared_32(at));
      }
    }
  }
}

/// sums += the product of the stages `a` and `b`, in the order of K.
template <GemmConfig C>
CLEAVE_DEVICE void multiply_ieee(uint32_t a, uint32_t b, const Fragment<C>& fragment, float* sums) {
  static_assert(C.operands.a == DType::f32 && C.operands.b == DType::f32);
  constexpr uint32_t kColBlocks = Fragment<C>::kColBlocks, kRows = Fragment<C>::kRows / 8;
  // A swizzle's pattern has 8 lines: within them all addresses differ by constants.
#pragma unroll(8 / kFmaDepth)
  for (uint32_t k = 0; k < C.tile.k; k += kFmaDepth) {
    float rows[kRows][kFmaDepth][1];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) load_lines<C, C.operands.a_major>(a, fragment.row0 + i * 8, k, rows[i]);
    CLEAVE_UNROLL
    for (uint32_t block = 0; block < kColBlocks; ++block) {
      float columns[kFmaDepth][2];
      load_lines<C, C.operands.b_major>(b, fragment.col0 + block * 8, k, columns);
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kFmaDepth; ++j) {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < 2 * kRows; ++i) {
          float& sum = sums[(i / 4 * kColBlocks + block) * 4 + i % 4];
          sum = multiply_add(rows[i / 2][j][0], columns[j][i % 2], sum);
        }
      }
    }
  }
}

}  // namespace cleave
