// How 8-bit products become float32 sums: after every k block the tensor cores' sums of that block
// are added to the thread's own, multiplied by the block's scales if there are any.
//
// It serves two ends. The tensor cores add 8-bit floats with about 14 bits of mantissa, so long
// sums need a wider place (what torch calls use_fast_accum=False). And scales of blocks along K
// cannot wait for the epilogue. Those come with their k block's stage (scale_loader.h).
#pragma once

#include "cleave/epilogue/tile.h"
#include "cleave/mainloop/scale_lines.h"
#include "cleave/ptx/mma_sync.h"

namespace cleave {

template <GemmConfig C>
class Promotion {
  static constexpr bool kScaled = C.scaling == Scaling::block;
  static constexpr uint32_t kColBlocks = Fragment<C>::kColBlocks;
  static constexpr uint32_t kTouched = touched_blocks(C.tile_n);

 public:
  /// Before a unit's first k block.
  CLEAVE_DEVICE void start(const Tile<C>& tile) {
    row0_ = tile.fragment.row0;
    col0_ = tile.fragment.col0;
    offset_ = tile.n0 % 128 + col0_;
  }

  /// sums += part (times its scales) for row block `row` of the fragment and all its columns.
  /// `scales`: shared address of the stage's.
  CLEAVE_DEVICE void add(const float* part, float* sums, uint32_t row, uint32_t scales) const {
    if constexpr (!kScaled) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kColBlocks * 4; ++i) sums[i] += part[i];
    } else {
      const float rows[2] = {row_scale(scales, row, 0), row_scale(scales, row, 1)};
      float touched[kTouched];
      if constexpr (C.scale_rows_b == 128) {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kTouched; ++i) touched[i] = load(scales, scale_lines_b_at(C) + i);
      }
      CLEAVE_UNROLL
      for (uint32_t col = 0; col < kColBlocks; ++col) {
        float columns[2];
        if constexpr (C.scale_rows_b == 128) {
          columns[0] = touched[0];
          CLEAVE_UNROLL
          for (uint32_t i = 1; i < kTouched; ++i) {
            if (offset_ + col * 8 >= i * 128) columns[0] = touched[i];
          }
          columns[1] = columns[0];
        } else {
          ptx::load_shared_pair(scales + (scale_lines_b_at(C) + col0_ + col * 8) * 4, columns);
        }
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < 4; ++i)
          sums[col * 4 + i] += part[col * 4 + i] * (rows[i / 2] * columns[i % 2]);
      }
    }
  }

 private:
  CLEAVE_DEVICE static float load(uint32_t scales, uint32_t line) {
    return __uint_as_float(ptx::load_shared_32(scales + line * 4));
  }

  CLEAVE_DEVICE float row_scale(uint32_t scales, uint32_t row, uint32_t half) const {
    const uint32_t tile_row = row0_ + row * Fragment<C>::kRowStep + half * 8;
    return load(scales, tile_row / C.scale_rows_a);
  }

  uint32_t row0_, col0_, offset_;
};

}  // namespace cleave
