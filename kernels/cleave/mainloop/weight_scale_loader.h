// Loads the scales of a packed weight's k blocks into their stages, and the zero points, asynchronously, four bytes at a
// time: lines of any length.
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
    batch_ = work.batch;
    block_ = work.k_first, step_ = work.k_step;
    row0_ = tile.m0;
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
      const int64_t line = weight_line_at<C>(p_.weights, batch_, block_, own / kWords);
      const uint32_t word = own % kWords;
      if (C.weights.has_zero && word >= kScales) {
        copy_word(stage + own * 4, p_.weights.zeros, 1, line, word - kScales);
      } else {
        copy_word(stage + own * 4, p_.weights.scales, weight_scale_bytes(C), line, word);
      }
    }
    block_ += step_;
  }

 private:
  /// Word `word` of those that have the tile's rows; past the operand's last row it is zeros.
  CLEAVE_DEVICE void copy_word(uint32_t to, const void* data, uint32_t size, int64_t line, uint32_t word) const {
    const auto first = reinterpret_cast<uint64_t>(data) + (line + row0_) * size;
    const uint64_t from = (first & ~uint64_t(3)) + word * 4;
    const auto left = int64_t(first + (p_.size.m - row0_) * size - from);
    ptx::copy_async<4>(to, reinterpret_cast<const void*>(from), left >= 4 ? 4 : left > 0 ? uint32_t(left) : 0);
  }

  const GemmParams& p_;
  uint32_t thread_;
  uint32_t batch_ = 0, block_ = 0, step_ = 0, row0_ = 0;
};

}  // namespace cleave
