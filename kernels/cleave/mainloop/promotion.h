// How 8-bit products become float32 sums: after every k block the tensor cores' sums of that block
// are added to the thread's own, multiplied by the block's scales if there are any.
//
// It serves two ends. The tensor cores add 8-bit floats with about 14 bits of mantissa, so long
// sums need a wider place (what torch calls use_fast_accum=False). And scales of blocks along K
// cannot wait for the epilogue. Those come with their k block's stage (scale_loader.h).
#pragma once

#include "cleave/config/output.h"
#include "cleave/config/scale_lines.h"
#include "cleave/config/threads.h"
#include "cleave/ptx/shared.h"
#include "cleave/tile/tile.h"

namespace cleave {

template <GemmConfig C>
class Promotion {
  static constexpr bool kScaled = C.epilogue.scaling == Scaling::block;
  static constexpr uint32_t kColBlocks = Fragment<C>::kColBlocks;
  static constexpr uint32_t kRowBlocks = Fragment<C>::kBlocks / kColBlocks;
  static constexpr uint32_t kPieces = gated(C) ? 2 : 1;  // of the tile's columns, each in a place of B of its own
  static constexpr uint32_t kTouched = scale_lines_b(C) / kPieces;
  static constexpr uint32_t kHalves = multiplies_halves(C) ? 2 : 1;
  // Columns of a piece that share a scale, wherever on its own grid the tile starts: a strip of the tile.
  static constexpr uint32_t kStrip = greatest_common_divisor(output_columns(C), kScaleBlock);

 public:
  /// Whether `add` still reads scales from the stage, which may not be handed back before.
  static constexpr bool kReadsStage = kScaled && C.scales.rows_b == 1 && !holds_columns(C);

  /// Before a work tile's first k block.
  CLEAVE_DEVICE void start(const Tile<C>& tile) {
    row0_ = tile.fragment.row0;
    col0_ = tile.fragment.col0;
    offset_ = tile.n0 % kScaleBlock;  // in both pieces: the up columns begin with a block
  }

  /// A stage's scales: those of the thread's rows, and of the blocks of 128 columns that the tile
  /// touches. Single columns have too many for most kernels; they stay in the stage.
  struct Scales {
    uint32_t stage;  // shared address
    float rows[kRowBlocks][2];
    float touched[C.scales.rows_b == 1 ? 1 : kPieces * kTouched];
    float columns[holds_columns(C) ? kColBlocks : 1][2];
  };

  CLEAVE_DEVICE Scales load(uint32_t stage) const {
    Scales scales;
    scales.stage = stage;
    if constexpr (kScaled) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowBlocks; ++i) {
        const uint32_t row = row0_ + i * Fragment<C>::kRowStep;
        if constexpr (pairs_scales_of_rows(C)) {
          ptx::load_shared_pair(stage + scale_place_a(C, row) * 4, scales.rows[i]);
        } else {
          scales.rows[i][0] = load_line(stage, row / C.scales.rows_a);
          scales.rows[i][1] = load_line(stage, (row + 8) / C.scales.rows_a);
        }
      }
      if constexpr (C.scales.rows_b == kScaleBlock) {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kPieces * kTouched; ++i) scales.touched[i] = load_line(stage, scale_lines_b_at(C) + i);
      }
    }
    if constexpr (holds_columns(C)) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kColBlocks; ++i)
        ptx::load_shared_pair(stage + (scale_lines_b_at(C) + col0_ + i * 8) * 4, scales.columns[i]);
    }
    return scales;
  }

  /// sums += part (times its scales) for wave `wave` of the warpgroup: a row block of the fragment and all its columns,
  /// or half of them.
  CLEAVE_DEVICE void add(const Part<C>* part, float* sums, uint32_t wave, const Scales& scales) const {
    const uint32_t row = wave / kHalves, first = wave % kHalves * (kColBlocks / kHalves);
    [[maybe_unused]] float factors[4];  // of a block's elements
    CLEAVE_UNROLL
    for (uint32_t col = 0; col < kColBlocks / kHalves; ++col) {
      if constexpr (kScaled) {
        if (C.scales.rows_b == 1 || (first + col) * 8 % kStrip == 0) find_factors(scales, row, first + col, factors);
      }
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const float part_i = float(part[col * 4 + i]);
        if constexpr (kScaled) {
          sums[col * 4 + i] += part_i * factors[i];
        } else {
          sums[col * 4 + i] += part_i;
        }
      }
    }
  }

 private:
  CLEAVE_DEVICE static float load_line(uint32_t stage, uint32_t line) {
    return __uint_as_float(ptx::load_shared_32(stage + line * 4));
  }

  /// Scales of the four elements of a block: two rows times two columns.
  CLEAVE_DEVICE void find_factors(const Scales& scales, uint32_t row, uint32_t col, float (&factors)[4]) const {
    float columns[2];
    if constexpr (holds_columns(C)) {
      columns[0] = scales.columns[col][0], columns[1] = scales.columns[col][1];
    } else if constexpr (C.scales.rows_b == 1) {
      ptx::load_shared_pair(scales.stage + (scale_lines_b_at(C) + col0_ + col * 8) * 4, columns);
    } else {
      columns[0] = columns[1] = strip_scale(scales, col);
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) factors[i] = scales.rows[row][i / 2] * columns[i % 2];
  }

  /// The scale of the strip that begins with block `col`: where the tile starts decides between two at most.
  CLEAVE_DEVICE float strip_scale(const Scales& scales, uint32_t col) const {
    constexpr uint32_t kPieceBlocks = kColBlocks / kPieces;
    const uint32_t at = col % kPieceBlocks * 8, first = at / kScaleBlock;
    const float* const touched = scales.touched + col / kPieceBlocks * kTouched + first;
    if ((at + kScaleBlock - kStrip) / kScaleBlock == first) return touched[0];
    return offset_ + at >= (first + 1) * kScaleBlock ? touched[1] : touched[0];
  }

  uint32_t row0_, col0_, offset_;
};

}  // namespace cleave
