// Reads a packed weight from global memory into registers, each byte once, for the streamed kernel: one warp's rows, k
// block by k block, far ahead of their use and over the ends of work tiles.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/memory/weight_layout.h"
#include "cleave/ptx/load_global.h"
#include "cleave/tile/cta_coord.h"
#include "cleave/weights/line_sum.h"

namespace cleave {

/// A lane's part of a k block of its warp's rows, as it lies in memory: codes, and what its rows have for each line.
template <GemmConfig C>
struct WeightRows {
  static constexpr uint32_t kBlocks = C.tile.k / kWeightBlock, kLines = weight_lines(C);
  static constexpr uint32_t kRegisters = kStrips<C> * (4 * kBlocks + (C.weights.has_zero ? 4 : 2) * kLines);

  uint32_t words[kStrips<C>][kBlocks][4];
  LineScales lines[kLines][kStrips<C>];
};

/// Which of the CTA's warps that multiply this is: they share a tile's rows, and its k blocks.
struct WarpSlice {
  uint32_t row;  // the tile's first of this warp
  uint32_t k;    // the first k block of a work tile; the others are warps.k apart
};

template <GemmConfig C>
class WeightReader {
  using Rows = WeightRows<C>;
  static constexpr uint32_t kScaleBytes = weight_scale_bytes(C);
  static_assert(kWeightBlock % Fragment<C>::kRows == 0, "a warp's rows are of one block");

 public:
  CLEAVE_DEVICE WeightReader(const GemmParams& p, const CtaCoord<C>& cta, const WarpSlice& warp)
      : p_(p), cta_(cta), warp_(warp), scheduler_(cta.scheduler(p)) {
    work_.k_count = 0;
  }

  /// Begins to read the warp's next k block, if there is one left. False after the last.
  CLEAVE_DEVICE bool read(Rows& to) {
    while (at_ >= work_.k_count) {
      if (!scheduler_.next(work_)) {
        work_.k_count = 0;
        return false;
      }
      start();
    }
    const uint32_t block = work_.k_block(at_);
    at_ += C.warps.k;
    const uint32_t last = blocks_along() - 1;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Rows::kBlocks; ++i) {
      // The last k block may have fewer: B has zeros beside what is read again, and no code is infinite.
      const char* const from = codes_ + uint64_t(min_of(block * Rows::kBlocks + i, last)) * kWeightBlockBytes;
      CLEAVE_UNROLL
      for (uint32_t strip = 0; strip < kStrips<C>; ++strip)
        ptx::load_global_once(to.words[strip][i], from + strip * 32 * kWeightThreadBytes);
    }
    CLEAVE_UNROLL
    for (uint32_t line = 0; line < Rows::kLines; ++line) {
      const uint32_t group = min_of(first_weight_group<C>(p_.weights, block) + line, p_.weights.groups - 1);
      const char* const from = scales_ + uint64_t(group) * (uint32_t(p_.weights.stride_k) * kScaleBytes);
      const uint8_t* const zeros = zeros_ + uint64_t(group) * uint32_t(p_.weights.stride_k);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 2 * kStrips<C>; ++i) {
        LineScales& scales = to.lines[line][i / 2];
        ptx::load_global_if<kScaleBytes>(&scales.scales[i % 2], from + row_[i] * kScaleBytes, true);
        if constexpr (C.weights.has_zero) ptx::load_global_if<1>(&scales.zeros[i % 2], zeros + row_[i], true);
      }
    }
    return true;
  }

 private:
  CLEAVE_DEVICE uint32_t blocks_along() const { return weight_blocks(p_.size.k); }

  CLEAVE_DEVICE void start() {
    at_ = warp_.k;
    const uint32_t lane = threadIdx.x % 32, row = weight_rows<C>(cta_.first_row(work_)) + warp_.row;
    const uint32_t down = weight_blocks(weight_rows<C>(p_.size.m)), block = min_of(row / kWeightBlock, down - 1);
    const uint32_t of_block = (row % kWeightBlock / 16 * 32 + lane) * kWeightThreadBytes;
    const uint64_t first = (work_.batch * p_.batched_a * down + block) * uint64_t(blocks_along());
    codes_ = static_cast<const char*>(p_.a.data) + first * kWeightBlockBytes + of_block;
    // Rows past the last have that one's scales: nothing of theirs is stored.
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2 * kStrips<C>; ++i)
      row_[i] = min_of(row + lane / 4 + i * 8, weight_rows<C>(p_.size.m) - 1);
    const int64_t entry = work_.batch * p_.weights.stride_batch;
    scales_ = static_cast<const char*>(p_.weights.scales) + entry * kScaleBytes;
    zeros_ = p_.weights.zeros + entry;
  }

  const GemmParams& p_;
  const CtaCoord<C>& cta_;
  const WarpSlice warp_;
  CtaScheduler<C> scheduler_;
  WorkTile work_;
  uint32_t at_ = 0;  // in the work tile
  const char* codes_ = nullptr;
  uint32_t row_[2 * kStrips<C>];
  const char* scales_ = nullptr;  // of the batch entry, and zero points
  const uint8_t* zeros_ = nullptr;
};

}  // namespace cleave
