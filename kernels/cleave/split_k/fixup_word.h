// How the slices of a tile agree on which CTA adds up which chunk of their partials, without waiting for a slice that
// may not be running: one 64-bit word per tile, zero between launches, changed by atomics only.
//
//   high half  the number of slices that have arrived; after that, plus those that have left again
//   low half   the slices that stay to reduce the tile, slice i being bit i
//
//   arrive     A slice has written its partial. It counts itself and, if it has nothing else to do, stays and polls the
//              word for a while. Other slices leave, except the last one if it finds that nobody stayed: it reduces the
//              whole tile.
//   complete   All slices have arrived, and the low half no longer changes. The slices that stayed reduce the tile:
//              chunk i is slice i's, and the first of them takes the chunks of those that left.
//   withdraw   A slice that has polled long enough in vain clears its bit and leaves. Arriving and withdrawing change
//              the same word, so every chunk has exactly one reducer whatever the timing.
//   leave      A slice that has seen the complete word counts itself again; the last one clears the word.
//
// So a tile is finished by CTAs that are running anyway: with all CTAs resident as fast as if they waited for each
// other, and with fewer it still ends. A chunk is summed over all slices in slice order, so the bits of D do not depend
// on who reduces what.
#pragma once

#include "cleave/core/math.h"

namespace cleave {

struct FixupWord {
  static constexpr uint32_t kMostChunks = 32;

  uint64_t bits = 0;

  CLEAVE_HD constexpr uint32_t count() const { return uint32_t(bits >> 32); }
  CLEAVE_HD constexpr uint32_t staying() const { return uint32_t(bits); }
  CLEAVE_HD constexpr bool complete(uint32_t slices) const { return count() >= slices; }

  /// The number of chunks that a tile of `most` parts is divided into.
  CLEAVE_HD static constexpr uint32_t chunks(uint32_t slices, uint32_t most) {
    return min_of(slices, min_of(most, kMostChunks));
  }
  CLEAVE_HD static constexpr uint32_t all(uint32_t chunks) { return chunks == kMostChunks ? ~0u : (1u << chunks) - 1; }
  CLEAVE_HD static constexpr uint32_t bit(uint32_t slice) { return 1u << slice; }

  /// What a slice adds when it arrives, and when it leaves.
  CLEAVE_HD static constexpr uint64_t arrival(uint32_t slice, bool stays) { return kOne | (stays ? bit(slice) : 0); }
  static constexpr uint64_t kOne = uint64_t(1) << 32;

  /// The word after slice `slice` has withdrawn.
  CLEAVE_HD constexpr FixupWord without(uint32_t slice) const { return {bits & ~uint64_t(bit(slice))}; }
  /// The arriving slice that found this word is the last of `slices`, and alone.
  CLEAVE_HD constexpr bool leaves_all(uint32_t slices) const { return count() + 1 == slices && staying() == 0; }
  /// The chunks of a slice that stayed; `this`: the complete word.
  CLEAVE_HD constexpr uint32_t chunks_of(uint32_t slice, uint32_t chunks) const {
    const bool first = (staying() & (bit(slice) - 1)) == 0;
    return bit(slice) | (first ? all(chunks) & ~staying() : 0);
  }
  /// The leaving slice that found this word is the last, and clears it.
  CLEAVE_HD constexpr bool clears(uint32_t slices) const {
    uint32_t stayed = 0;
    for (uint32_t rest = staying(); rest != 0; rest &= rest - 1) ++stayed;
    return count() + 1 == slices + stayed;
  }
};

}  // namespace cleave
