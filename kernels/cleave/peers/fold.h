// The sum over ranks of their partial results, in the order of the ranks and in float32, and what is done to it once,
// gates and scales that are found, too: the fixup of split-K whose outer slices are GPUs. Partial results of peers are
// read where they lie, in their memory, after each CTA has met those of the peers; or, of small sums that all ranks
// make, they are pushed to them.
#pragma once

#include "cleave/core/elementwise.h"
#include "cleave/core/max_over_lanes.h"
#include "cleave/core/quantizer.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/peers/fold_config.h"
#include "cleave/peers/fold_params.h"
#include "cleave/peers/pushed.h"
#include "cleave/peers/strip.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// A sum with what is added to it.
template <FoldConfig C>
CLEAVE_DEVICE float whole_sum(const FoldParams& p, float sum, uint32_t row, uint32_t column) {
  if constexpr (C.has_c) sum += load_element(C.c, p.c, row * p.c_stride + column);
  if constexpr (C.has_bias) sum += load_element(C.bias, p.bias, column);
  return sum;
}

/// What becomes of one, or of a gate and an up.
template <FoldConfig C, class... Sums>
CLEAVE_DEVICE float function_of(Sums... sums) {
  if constexpr (C.has_function) {
    float made[1];
    FunctionBody<C>::run(sums..., nullptr, made);  // it has no inputs
    return made[0];
  } else {
    return (sums + ...);
  }
}

/// A piece of a row of D: where it is, and its sums so far.
template <FoldConfig C>
struct FoldPiece {
  static constexpr uint32_t kElements = fold_elements(C), kBytes = kElements * size_of(C.partial);
  static constexpr uint32_t kVectors = fold_vectors(C);
  static constexpr bool kWhole = C.vectors || kElements == 1;  // vectors are loaded at once, and exist or do not

  uint32_t row, column;
  bool exists;
  RawVector<kBytes> parts[kVectors][C.ranks];

  CLEAVE_DEVICE void place(const FoldParams& p, uint32_t number) {
    row = p.row.quotient(number);
    column = (number - row * p.row.divisor) * kElements;
    exists = number < p.pieces && (!C.finds_scales || column < p.columns);
  }

  CLEAVE_DEVICE bool has(const FoldParams& p, uint32_t i) const { return kWhole || column + i < p.columns; }

  /// The sum's column that element `i` of a vector is of.
  CLEAVE_DEVICE uint32_t column_of(const FoldParams& p, uint32_t vector, uint32_t i) const {
    if constexpr (C.gates == Gates::interleaved) return 2 * column + vector * kElements + i;
    return vector * p.columns + column + i;
  }

  CLEAVE_DEVICE RawVector<kBytes> part_of(const FoldParams& p, uint32_t rank, uint32_t vector) const {
    constexpr uint32_t kSize = size_of(C.partial);
    const char* const from =
        static_cast<const char*>(p.partials[rank]) + (row * p.partial_stride + column_of(p, vector, 0)) * kSize;
    if constexpr (kWhole) return load_vector<kBytes>(from, exists);
    RawVector<kBytes> raw;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kElements; ++i) {
      const uint32_t of_d = C.gates == Gates::interleaved ? (vector * kElements + i) / 2 : i;
      const uint32_t bits = load_vector<kSize>(from + i * kSize, exists && has(p, of_d)).words[0];
      raw.words[i * kSize / 4] |= bits << i * kSize % 4 * 8;
    }
    return raw;
  }

  CLEAVE_DEVICE void load(const FoldParams& p) {
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVectors; ++v) {
      CLEAVE_UNROLL
      for (uint32_t r = 0; r < C.ranks; ++r) parts[v][r] = part_of(p, r, v);
    }
  }

  CLEAVE_DEVICE float sum_of(const FoldParams& p, uint32_t vector, uint32_t i) const {
    const auto& ranks = parts[vector];
    const uint32_t at = column_of(p, vector, i);
    if constexpr (C.partial == DType::i32) {
      uint32_t sum = ranks[0].words[i];
      CLEAVE_UNROLL
      for (uint32_t r = 1; r < C.ranks; ++r) sum += ranks[r].words[i];
      const float scale_a = p.scale_a == nullptr ? 1.0f : p.scale_a[row * p.scale_a_stride];
      const float scale_b = p.scale_b == nullptr ? 1.0f : p.scale_b[at * p.scale_b_stride];
      return whole_sum<C>(p, scaled(int32_t(sum), scale_a, scale_b), row, at);
    } else {
      float sum = element_of<C.partial>(ranks[0], i);
      CLEAVE_UNROLL
      for (uint32_t r = 1; r < C.ranks; ++r) sum += element_of<C.partial>(ranks[r], i);
      return whole_sum<C>(p, sum, row, at);
    }
  }

  /// D's element `i`, as a float.
  CLEAVE_DEVICE float value_of(const FoldParams& p, uint32_t i) const {
    if constexpr (C.gates == Gates::none) {
      return function_of<C>(sum_of(p, 0, i));
    } else if constexpr (C.gates == Gates::halves) {
      return function_of<C>(sum_of(p, 0, i), sum_of(p, 1, i));
    } else {
      const uint32_t gate = 2 * i, up = gate + 1;
      return function_of<C>(sum_of(p, gate / kElements, gate % kElements), sum_of(p, up / kElements, up % kElements));
    }
  }

  /// By whole warps: the scale of the line of 128 columns that neighbours have, and what is stored of it.
  CLEAVE_DEVICE void quantize(const FoldParams& p, float (&values)[kElements]) const {
    Reach reach;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kElements; ++i) reach.add(true, values[i]);
    reach.above = max_over_lanes<kScaleBlock / kElements>(reach.above);
    const Quantizer quantizer = quantizer_for(C.d, true, C.ue8m0, reach);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kElements; ++i) values[i] = quantized(quantizer, true, values[i]);
    if (exists && column % kScaleBlock == 0) {
      const uint32_t line = column / kScaleBlock;
      p.scale_out[row * p.scale_out_row_stride + line * p.scale_out_block_stride] = quantizer.scale;
    }
  }

  CLEAVE_DEVICE void finish(const FoldParams& p, float inverse_scale_d) const {
    if (!C.finds_scales && !exists) return;
    float values[kElements] = {};
    if (exists) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kElements; ++i)
        if (has(p, i)) values[i] = value_of(p, i) * inverse_scale_d;
    }
    if constexpr (C.finds_scales) quantize(p, values);
    if (!exists) return;
    const int64_t at = row * p.d_stride + column;
    if constexpr (C.vectors) {
      store_vector<C.d>(static_cast<char*>(p.d) + at * size_of(C.d), values);
    } else {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kElements; ++i)
        if (has(p, i)) store_element(C.d, p.d, at + i, values[i]);
    }
  }
};

/// The same of what each rank has itself, which it sends to all.
template <FoldConfig C>
CLEAVE_DEVICE void fold_pushed(const FoldParams& p) {
  constexpr uint32_t kPieces = fold_pushes(C), kVectors = fold_vectors(C), kCount = kPieces * kVectors;
  FoldPiece<C> pieces[kPieces];
  PushedVector own[kCount], all[kCount][C.ranks];
  bool exists[kCount];
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) {
    FoldPiece<C>& piece = pieces[i / kVectors];
    if (i % kVectors == 0) piece.place(p, (i / kVectors * gridDim.x + blockIdx.x) * fold_threads(C) + threadIdx.x);
    own[i] = piece.part_of(p, p.meeting.rank, i % kVectors);
    exists[i] = piece.exists;
  }
  const CtaPlace place(p.meeting);
  if (!place.meeting(0).end(exchange(place, own, exists, all))) return;
  ptx::launch_dependents();
  const float inverse = C.has_scale_d ? 1.0f / *p.scale_d : 1.0f;
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) {
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < C.ranks; ++r) pieces[i / kVectors].parts[i % kVectors][r] = all[i][r];
  }
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kPieces; ++i) pieces[i].finish(p, inverse);
}

/// The same in strips, each a CTA's.
template <FoldConfig C>
CLEAVE_DEVICE void fold_strip(const FoldParams& p) {
  static_assert(C.gates == Gates::none && !C.finds_scales, "its threads have neither all of a line nor both sums");
  using Part = Strip<C.ranks, C.partial, C.strip_vectors>;
  const Part strip(p.meeting, blockIdx.x, threadIdx.x);
  const uint32_t rows = p.rows, first = blockIdx.x * kStripColumns;
  float sums[Part::kSums];
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < Part::kSums; ++i) {
    const uint32_t row = strip.row(i), column = first + strip.column(i);
    sums[i] = row < rows ? load_element(C.partial, p.partials[p.meeting.rank], row * p.partial_stride + column) : 0.0f;
  }
  strip.add_up(rows, sums);
  ptx::launch_dependents();
  const float inverse = C.has_scale_d ? 1.0f / *p.scale_d : 1.0f;
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < Part::kSums; ++i) {
    const uint32_t row = strip.row(i), column = first + strip.column(i);
    if (row >= rows) continue;
    const float value = function_of<C>(whole_sum<C>(p, sums[i], row, column)) * inverse;
    store_element(C.d, p.d, row * p.d_stride + column, value);
  }
  __syncthreads();
  if (threadIdx.x == 0) strip.count();
}

template <FoldConfig C>
CLEAVE_DEVICE void fold(const FoldParams& p) {
  ptx::grid_dependency_wait();
  if constexpr (C.strip_vectors > 0) return fold_strip<C>(p);
  if constexpr (C.pushed) {
    if (p.meeting.size > 1) return fold_pushed<C>(p);
  }
  if (p.meeting.size > 1 && !meet(p.meeting)) return;
  ptx::launch_dependents();
  constexpr uint32_t kAhead = fold_ahead(C);
  const float inverse = C.has_scale_d ? 1.0f / *p.scale_d : 1.0f;
  const uint32_t step = gridDim.x * fold_threads(C), first_of_all = blockIdx.x * fold_threads(C) + threadIdx.x;
  const uint32_t end = C.finds_scales ? round_up(p.pieces, 32u) : p.pieces;  // of whole warps
  CLEAVE_NO_UNROLL
  for (uint32_t first = first_of_all; first < end; first += kAhead * step) {
    FoldPiece<C> pieces[kAhead];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) {
      pieces[i].place(p, first + i * step);
      pieces[i].load(p);
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) pieces[i].finish(p, inverse);
  }
}

}  // namespace cleave
