// How 8-bit products become float32 sums: after every k block the tensor cores' sums of that block
// are added to the thread's own, multiplied by the block's scales if there are any.
//
// It serves two ends. The tensor cores add 8-bit floats with about 14 bits of mantissa, so long
// sums need a wider place (what torch calls use_fast_accum=False). And scales of blocks along K
// cannot wait for the epilogue. Those come with their k block's stage (scale_loader.h).
#pragma once

#include "cleave/config/scale_lines.h"
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

 public:
  /// Whether `add` still reads scales from the stage, which may not be handed back before.
  static constexpr bool kReadsStage = kScaled && C.scales.rows_b == 1;

  /// Before a work tile's first k block.
  CLEAVE_DEVICE void start(const Tile<C>& tile) {
    row0_ = tile.fragment.row0;
    col0_ = tile.fragment.col0;
    offset_ = tile.n0 % kScaleBlock + col0_;  // in both pieces: the up columns begin with a block
  }

  /// A stage's scales: those of the thread's rows, and of the blocks of 128 columns that the tile
  /// touches. Single columns have too many; they stay in the stage.
  struct Scales {
    uint32_t stage;  // shared address
    float rows[kRowBlocks][2];
    float touched[C.scales.rows_b == 1 ? 1 : kPieces * kTouched];
  };

  CLEAVE_DEVICE Scales load(uint32_t stage) const {
    Scales scales;
    scales.stage = stage;
    if constexpr (kScaled) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 2 * kRowBlocks; ++i) {
        const uint32_t row = row0_ + i / 2 * Fragment<C>::kRowStep + i % 2 * 8;
        scales.rows[i / 2][i % 2] = load_line(stage, row / C.scales.rows_a);
      }
      if constexpr (C.scales.rows_b == kScaleBlock) {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kPieces * kTouched; ++i) scales.touched[i] = load_line(stage, scale_lines_b_at(C) + i);
      }
    }
    return scales;
  }

  /// sums += part (times its scales) for wave `wave` of the warpgroup: a row block of the fragment and all its columns,
  /// or half of them.
  CLEAVE_DEVICE void add(const Part<C>* part, float* sums, uint32_t wave, const Scales& scales) const {
    const uint32_t row = wave / kHalves, first = wave % kHalves * (kColBlocks / kHalves);
    CLEAVE_UNROLL
    for (uint32_t col = 0; col < kColBlocks / kHalves; ++col) {
      float columns[2];
      if constexpr (kScaled) column_scales(scales, first + col, columns);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const float part_i = float(part[col * 4 + i]);
        if constexpr (kScaled) {
          sums[col * 4 + i] += part_i * (scales.rows[row][i / 2] * columns[i % 2]);
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

  CLEAVE_DEVICE void column_scales(const Scales& scales, uint32_t col, float (&columns)[2]) const {
    if constexpr (C.scales.rows_b == 1) {
      ptx::load_shared_pair(scales.stage + (scale_lines_b_at(C) + col0_ + col * 8) * 4, columns);
    } else {
      constexpr uint32_t kPieceBlocks = kColBlocks / kPieces;
      const uint32_t piece = col / kPieceBlocks * kTouched;
      float scale = scales.touched[piece];
      CLEAVE_UNROLL
      for (uint32_t i = 1; i < kTouched; ++i) {
        if (offset_ + col % kPieceBlocks * 8 >= i * kScaleBlock) scale = scales.touched[piece + i];
      }
      columns[0] = columns[1] = scale;
    }
  }

  uint32_t row0_, col0_, offset_;
};

}  // namespace cleave
