// What the streamed kernel adds to a warp's sums for one line of a k block: the columns of a packed weight that share
// scales.
//
// int4: codes are multiplied as they are, as the integers that follow 128 (float16: 1024), where a code is the last
// bits of the mantissa: a shift and a lop3 make two of them. A line as a whole is then
//
//   sum += scale * (part - (128 + zero) * columns)        columns: the sum of B's, which a row of ones in A makes,
//
// two multiply-adds for each sum and line instead of one for each two elements. Products of codes with elements of B
// are exact, and a part is at most 143 (float16: 1039) times as large as what B has: the rounding of float32 then costs
// less than that of elements to 16 bits would. Where B is infinite, or beyond 2^118, sums are no numbers.
//
// e2m1: elements are made as for WGMMA (dequantise.h), since lines are short.
#pragma once

#include "cleave/core/element.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/tile/fragment.h"
#include "cleave/weights/dequantise.h"

namespace cleave {

/// A lane's sums of the warp's rows, in strips of 16, by the tile's columns, in pieces of 8: block by block a Fragment.
template <GemmConfig C>
inline constexpr uint32_t kStrips = Fragment<C>::kRows / 16;
template <GemmConfig C>
inline constexpr uint32_t kPieces = C.tile.n / 8;
template <GemmConfig C>
using StripSums = float[kStrips<C>][kPieces<C>][4];

/// What a lane's two rows of a strip have for a line.
struct LineScales {
  uint32_t scales[2], zeros[2];
};

namespace detail {

template <GemmConfig C>
class LineOfCodes {
  static constexpr DType kType = C.operands.a;
  static constexpr bool kBfloat = kType == DType::bf16;
  static constexpr uint32_t kPair = 0x00010001;  // times a number of 16 bits: a pair of it
  static constexpr uint32_t kBase = (kBfloat ? 0x4300 : 0x6400) * kPair, kOne = (kBfloat ? 0x3f80 : 0x3c00) * kPair;
  static constexpr float kBias = kBfloat ? 128 : 1024;

 public:
  CLEAVE_DEVICE explicit LineOfCodes(const LineScales (&line)[kStrips<C>]) : line_(line) {}

  /// One step of 16 columns. `words`: of each strip; `b`: of each piece.
  CLEAVE_DEVICE void add(const uint32_t (&words)[kStrips<C>], const uint32_t (&b)[kPieces<C>][2], StripSums<C>&) {
    const uint32_t base = ptx::in_register<kBase>();
    CLEAVE_UNROLL
    for (uint32_t strip = 0; strip < kStrips<C>; ++strip) {
      uint32_t codes[4];
      CLEAVE_UNROLL
      for (uint32_t r = 0; r < 4; ++r) codes[r] = ptx::and_or(words[strip] >> (4 * r), 0x000f000f, base);
      CLEAVE_UNROLL
      for (uint32_t piece = 0; piece < kPieces<C>; ++piece)
        ptx::mma<kType, kType>(parts_[strip][piece], codes, b[piece][0], b[piece][1]);
    }
    const uint32_t ones[4] = {kOne, kOne, kOne, kOne};
    CLEAVE_UNROLL
    for (uint32_t piece = 0; piece < kPieces<C>; ++piece)
      ptx::mma<kType, kType>(columns_[piece], ones, b[piece][0], b[piece][1]);
  }

  CLEAVE_DEVICE void finish(StripSums<C>& sums) const {
    CLEAVE_UNROLL
    for (uint32_t strip = 0; strip < kStrips<C>; ++strip) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const LineScales& line = line_[strip];
        const float scale =
            kBfloat ? bf16_to_float(uint16_t(line.scales[i / 2])) : f16_to_float(uint16_t(line.scales[i / 2]));
        const float bias = kBias + (C.weights.has_zero ? float(line.zeros[i / 2]) : 8.0f);
        CLEAVE_UNROLL
        for (uint32_t piece = 0; piece < kPieces<C>; ++piece) {
          const float part = fmaf(-bias, columns_[piece][i], parts_[strip][piece][i]);
          sums[strip][piece][i] = fmaf(scale, part, sums[strip][piece][i]);
        }
      }
    }
  }

 private:
  const LineScales (&line_)[kStrips<C>];
  float parts_[kStrips<C>][kPieces<C>][4] = {};
  float columns_[kPieces<C>][4] = {};
};

template <GemmConfig C>
class LineOfElements {
  using Dequantise = Dequantiser<C>;

 public:
  CLEAVE_DEVICE explicit LineOfElements(const LineScales (&line)[kStrips<C>]) {
    CLEAVE_UNROLL
    for (uint32_t strip = 0; strip < kStrips<C>; ++strip)
      Dequantise::rows(line[strip].scales, line[strip].zeros, rows_[strip]);
  }

  CLEAVE_DEVICE void add(const uint32_t (&words)[kStrips<C>], const uint32_t (&b)[kPieces<C>][2],
                         StripSums<C>& sums) const {
    CLEAVE_UNROLL
    for (uint32_t strip = 0; strip < kStrips<C>; ++strip) {
      uint32_t elements[4];
      CLEAVE_UNROLL
      for (uint32_t r = 0; r < 4; ++r) elements[r] = Dequantise::pair(words[strip], r, rows_[strip][r % 2]);
      CLEAVE_UNROLL
      for (uint32_t piece = 0; piece < kPieces<C>; ++piece)
        ptx::mma<C.operands.a, C.operands.b>(sums[strip][piece], elements, b[piece][0], b[piece][1]);
    }
  }

  CLEAVE_DEVICE void finish(StripSums<C>&) const {}

 private:
  typename Dequantise::Row rows_[kStrips<C>][2];
};

}  // namespace detail

template <GemmConfig C>
using LineSum = Either<scales_sums(C), detail::LineOfCodes<C>, detail::LineOfElements<C>>;

}  // namespace cleave
