// What TMA cannot clip: the end of a group of K within an operand that is contiguous
// along K. The tile's last k block then begins with this group's k's and goes on with the next
// group's, which the consumers overwrite with zeros before they multiply.
#pragma once

#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/memory/swizzle.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/tma.h"
#include "cleave/schedule/schedule.h"
#include "cleave/tile/named_barriers.h"

namespace cleave {

template <GemmConfig C>
CLEAVE_HD constexpr bool clips() {
  return C.schedule.grouping == Grouping::k && (C.operands.a_major == Major::k || C.operands.b_major == Major::k);
}

/// Zeros from k `valid` on in `TileRows` rows of a K-major stage, by `threads` threads together: of
/// a row's 16-byte pieces one may be cut, later ones are cleared.
template <GemmConfig C, uint32_t TileRows>
CLEAVE_DEVICE void clip_operand(uint32_t stage, uint32_t valid, uint32_t thread, uint32_t threads) {
  constexpr uint32_t kElement = size_of(C.operands.a), kRowBytes = C.tile.k * kElement;
  const uint32_t kept = valid * kElement, first = kept / 16;  // the first piece that is not kept
  const uint32_t pieces = kRowBytes / 16 - first;
  for (uint32_t i = thread; i < TileRows * pieces; i += threads) {
    const uint32_t row = i % TileRows, byte = (first + i / TileRows) * 16;
    const uint32_t at = stage + byte / 128 * TileRows * 128 + swizzle(row, byte % 128);
    uint32_t words[4] = {};
    if (kept > byte) {
      ptx::load_shared_128(at, words);
      CLEAVE_UNROLL
      for (uint32_t word = 0; word < 4; ++word) {
        const uint32_t begin = byte + word * 4, left = max_of(kept, begin) - begin;  // bytes to keep
        if (left < 4) words[word] &= (1u << (left * 8)) - 1;
      }
    }
    ptx::store_shared_128(at, words);
  }
}

/// By all math threads of a tile, before they multiply the work tile's k block `block`, which lies in the
/// stages `a` and `b`.
template <GemmConfig C>
CLEAVE_DEVICE void clip_stage(const WorkTile& work, uint32_t block, uint32_t a, uint32_t b) {
  const uint32_t first = work.k_block(block) * C.tile.k;
  if (first + C.tile.k <= work.range.size()) return;
  const uint32_t valid = max_of(work.range.size(), first) - first;  // 0 of an empty group
  constexpr uint32_t kThreads = math_threads(C);
  const uint32_t thread = threadIdx.x % kThreads;
  if constexpr (C.operands.a_major == Major::k) clip_operand<C, C.tile.m>(a, valid, thread, kThreads);
  if constexpr (C.operands.b_major == Major::k) clip_operand<C, C.tile.n>(b, valid, thread, kThreads);
  ptx::fence_async_shared();
  if constexpr (C.warps.pingpong) {
    ptx::named_barrier_sync(warpgroup_barrier(threadIdx.x / 128), 128);
  } else {
    math_sync<C>();
  }
}

}  // namespace cleave
