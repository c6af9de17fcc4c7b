// Loads the scales of a packed weight's k blocks into their stages, and the zero points, asynchronously, four bytes at
// a time: lines of any length, from any address on.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/weight_lines.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/schedule/schedule.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// One of `Threads` threads that load them together.
template <GemmConfig C, uint32_t Threads>
class WeightScaleLoader {
 public:
  CLEAVE_DEVICE WeightScaleLoader(const GemmParams& p, uint32_t thread) : p_(p), thread_(thread) {}

  CLEAVE_DEVICE void start(const WorkTile& work, const Tile<C>& tile) {
    block_ = work.k_first, step_ = work.k_step;
    // A partner's tile may lie past the last row, and then reads that one: nothing of its own is stored.
    const uint32_t m0 = min_of(weight_rows<C>(tile.m0), weight_rows<C>(p_.size.m) - 1);
    const int64_t first = int64_t(work.batch) * p_.weights.stride_batch + m0;
    scales_ = reinterpret_cast<uint64_t>(p_.weights.scales) + first * weight_scale_bytes(C);
    zeros_ = reinterpret_cast<uint64_t>(p_.weights.zeros) + first;
    rows_ = weight_rows<C>(p_.size.m) - m0;
  }

  /// The work tile's next k block, into the stage at `stage`.
  CLEAVE_DEVICE void load(uint32_t stage) {
    constexpr uint32_t kWords = weight_line_words(C), kScales = weight_scale_words(C), kAll = weight_lines(C) * kWords;
    constexpr uint32_t kOwn = ceil_div(kAll, Threads);
    constexpr int kUnroll = kOwn <= 2 ? kOwn : 1;  // the producer has no registers for more
#pragma unroll kUnroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t own = i * Threads + thread_;
      if (kAll % Threads != 0 && own >= kAll) break;
      const uint32_t group = first_weight_group<C>(p_.weights, block_) + own / kWords, word = own % kWords;
      if (C.weights.has_zero && word >= kScales) {
        copy_word<1>(stage + own * 4, zeros_, group, word - kScales);
      } else {
        copy_word<weight_scale_bytes(C)>(stage + own * 4, scales_, group, word);
      }
    }
    block_ += step_;
  }

 private:
  /// Word `word` of those that have the tile's rows in one group's line; past the last row, and the last group, zeros.
  template <uint32_t Size>
  CLEAVE_DEVICE void copy_word(uint32_t to, uint64_t origin, uint32_t group, uint32_t word) const {
    const uint64_t first = origin + uint64_t(group) * (p_.weights.stride_k * Size);
    const uint64_t from = (first & ~uint64_t(3)) + word * 4;
    const int32_t left = int32_t(min_of(rows_, C.tile.m) * Size + uint32_t(first) % 4 - word * 4);
    const int32_t bytes = group < p_.weights.groups ? min_of(left, 4) : 0;
    ptx::copy_async<4>(to, reinterpret_cast<const void*>(from), uint32_t(max_of(bytes, 0)));
  }

  const GemmParams& p_;
  uint32_t thread_;
  uint32_t block_ = 0, step_ = 0, rows_ = 0;
  uint64_t scales_ = 0, zeros_ = 0;  // of the tile's first row
};

}  // namespace cleave
