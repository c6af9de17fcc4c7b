// How 8-bit products become float32 sums: after every k block the tensor cores' sums of that block
// are added to the thread's own, multiplied by the block's scales if there are any.
//
// It serves two ends. The tensor cores add 8-bit floats with about 14 bits of mantissa, so long
// sums need a wider place (what torch calls use_fast_accum=False). And scales of blocks along K
// cannot wait for the epilogue.
//
// A thread needs the scales of its own rows and columns only (fragment.h). They are read from
// global memory while their block is being multiplied.
#pragma once

#include "cleave/epilogue/fragment.h"
#include "cleave/kernel/gemm_params.h"
#include "cleave/mainloop/promotion_plan.h"

namespace cleave {

/// Scales of one operand in one k block, as one thread needs them: of its rows (or columns), or,
/// where 128 share a scale, of the blocks that its tile touches.
template <uint32_t Lines>
struct ScaleLines {
  float values[Lines];
};

template <GemmConfig C>
class Promotion {
  static constexpr bool kScaled = C.scaling == Scaling::block;
  static constexpr uint32_t kColBlocks = Fragment<C>::kColBlocks;
  static constexpr uint32_t kRowBlocks = Fragment<C>::kBlocks / kColBlocks;
  static constexpr uint32_t kTouched = touched_blocks(C.tile_n);
  static constexpr uint32_t kRowLines = kRowBlocks * (C.scale_rows_a == 1 ? 2 : 1);
  static constexpr uint32_t kColLines = C.scale_rows_b == 1 ? 2 * kColBlocks : kTouched;

 public:
  /// Before a unit's first k block. (m0, n0): the tile's first row and column.
  CLEAVE_DEVICE void start(const GemmParams& p, const Fragment<C>& fragment, uint32_t m0,
                           uint32_t n0, const WorkUnit& unit) {
    if constexpr (kScaled) {
      p_ = &p;
      unit_ = &unit;
      row0_ = m0 + fragment.row0;
      col0_ = n0 + fragment.col0;
      first_touched_ = n0 / 128;
      offset_ = col0_ - first_touched_ * 128;
    }
  }

  /// Starts to read the scales of the unit's k block `index`, for the next `use`.
  CLEAVE_DEVICE void fetch(uint32_t index) {
    if constexpr (kScaled) {
      const uint32_t k_block = unit_->k_block(index), batch = unit_->batch;
      const uint32_t m = p_->epilogue.m, n = p_->epilogue.n;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowLines; ++i) {
        const uint32_t row = C.scale_rows_a == 1 ? row0_ + i / 2 * Fragment<C>::kRowStep + i % 2 * 8
                                                 : row0_ + i * Fragment<C>::kRowStep;
        next_rows_.values[i] = *line(p_->scales_a, C.scale_rows_a, row, m, k_block, batch);
      }
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kColLines; ++i) {
        const uint32_t col =
            C.scale_rows_b == 1 ? col0_ + i / 2 * 8 + i % 2 : (first_touched_ + i) * 128;
        next_cols_.values[i] = *line(p_->scales_b, C.scale_rows_b, col, n, k_block, batch);
      }
    }
  }

  /// `add` uses the scales fetched last from here on.
  CLEAVE_DEVICE void use() {
    rows_ = next_rows_;
    cols_ = next_cols_;
  }

  /// sums += part (times its scales) for row block `row` of the fragment and all its columns.
  CLEAVE_DEVICE void add(const float* part, float* sums, uint32_t row) const {
    CLEAVE_UNROLL
    for (uint32_t col = 0; col < kColBlocks; ++col) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t at = col * 4 + i;
        sums[at] = kScaled ? sums[at] + part[at] * (row_scale(row, i / 2) * col_scale(col, i % 2))
                           : sums[at] + part[at];
      }
    }
  }

 private:
  CLEAVE_DEVICE float row_scale(uint32_t row, uint32_t half) const {
    return rows_.values[C.scale_rows_a == 1 ? row * 2 + half : row];
  }

  CLEAVE_DEVICE float col_scale(uint32_t col, uint32_t second) const {
    if constexpr (C.scale_rows_b == 1) {
      return cols_.values[col * 2 + second];
    } else {
      float scale = cols_.values[0];
      CLEAVE_UNROLL
      for (uint32_t i = 1; i < kTouched; ++i) {
        if (offset_ + col * 8 >= i * 128) scale = cols_.values[i];
      }
      return scale;
    }
  }

  /// Rows and columns outside D take the last one's scale; nothing of theirs is stored.
  CLEAVE_DEVICE static const float* line(const BlockScales& s, uint32_t rows, uint32_t row,
                                         uint32_t end, uint32_t k_block, uint32_t batch) {
    return s.data + int64_t(batch) * s.stride_batch + int64_t(k_block) * s.stride_k +
           int64_t(min_of(row, end - 1) / rows) * s.stride_row;
  }

  const GemmParams* p_;
  const WorkUnit* unit_;
  uint32_t row0_, col0_, first_touched_, offset_;
  ScaleLines<kRowLines> rows_, next_rows_;
  ScaleLines<kColLines> cols_, next_cols_;
};

}  // namespace cleave
