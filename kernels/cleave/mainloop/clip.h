// What the copy engine cannot clip: the end of a group of K within an operand that is contiguous
// along K. The tile's last k block then begins with this group's k's and goes on with the next
// group's, which the consumers overwrite with zeros before they multiply.
#pragma once

#include "cleave/join/partials.h"
#include "cleave/memory/smem_plan.h"
#include "cleave/memory/swizzle.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/tma.h"

namespace cleave {

template <GemmConfig C>
CLEAVE_HD constexpr bool clips() {
  return C.grouping == Grouping::k && (C.a_major == Major::k || C.b_major == Major::k);
}

/// Zeros from k `valid` on in `TileRows` rows of a K-major stage, by `threads` threads together.
template <GemmConfig C, uint32_t TileRows>
CLEAVE_DEVICE void clip_operand(uint32_t stage, uint32_t valid, uint32_t thread, uint32_t threads) {
  constexpr uint32_t kElement = size_of(C.a), kAtom = atom_elements(C.a);
  constexpr uint32_t kPieces = C.tile_k * kElement / 16;
  for (uint32_t i = thread; i < TileRows * kPieces; i += threads) {
    const uint32_t row = i % TileRows, piece = i / TileRows, k = piece * 16 / kElement;
    if (k + 16 / kElement <= valid) continue;
    const uint32_t at = stage + k / kAtom * TileRows * 128 + swizzle(row, k % kAtom * kElement);
    for (uint32_t byte = k >= valid ? 0 : (valid - k) * kElement; byte < 16; byte += kElement) {
      if constexpr (kElement == 1) {
        ptx::store_shared_8(at + byte, 0);
      } else {
        ptx::store_shared_16(at + byte, 0);
        if constexpr (kElement == 4) ptx::store_shared_16(at + byte + 2, 0);
      }
    }
  }
}

/// By all math threads of a tile, before they multiply the unit's k block `block`, which lies in the
/// stages `a` and `b`.
template <GemmConfig C>
CLEAVE_DEVICE void clip_stage(const WorkUnit& unit, uint32_t block, uint32_t a, uint32_t b) {
  const uint32_t first = unit.k_block(block) * C.tile_k;
  if (first + C.tile_k <= unit.range.size()) return;
  const uint32_t valid = max_of(unit.range.size(), first) - first;  // 0 of an empty group
  constexpr uint32_t kThreads = math_threads(C);
  const uint32_t thread = threadIdx.x % kThreads;
  if constexpr (C.a_major == Major::k) clip_operand<C, C.tile_m>(a, valid, thread, kThreads);
  if constexpr (C.b_major == Major::k) clip_operand<C, C.tile_n>(b, valid, thread, kThreads);
  ptx::fence_async_shared();
  if constexpr (C.pingpong) {
    ptx::named_barrier_sync(warpgroup_barrier(threadIdx.x / 128), 128);
  } else {
    math_sync<C>();
  }
}

}  // namespace cleave
