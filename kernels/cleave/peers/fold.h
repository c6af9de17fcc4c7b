// The sum over ranks of their partial results, in the order of the ranks and in float32, and what is done to it once:
// the fixup of split-K whose outer slices are GPUs. Partial results of peers are read where they lie, in their memory,
// after each CTA has met those of the peers; or, of small sums that all ranks make, they are pushed to them.
#pragma once

#include "cleave/core/elementwise.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/peers/fold_config.h"
#include "cleave/peers/fold_params.h"
#include "cleave/peers/pushed.h"
#include "cleave/peers/strip.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <FoldConfig C>
CLEAVE_DEVICE float function_of(float sum) {
  if constexpr (C.has_function) {
    float made[1];
    FunctionBody<C>::run(sum, nullptr, made);  // it has no inputs
    return made[0];
  }
  return sum;
}

/// What is stored of a sum.
template <FoldConfig C>
CLEAVE_DEVICE float finished(const FoldParams& p, float sum, uint32_t row, uint32_t column, float inverse_scale_d) {
  if constexpr (C.has_c) sum += load_element(C.c, p.c, row * p.c_stride + column);
  if constexpr (C.has_bias) sum += load_element(C.bias, p.bias, column);
  return function_of<C>(sum) * inverse_scale_d;
}

/// A piece of a row: where it is, and its sum so far.
template <FoldConfig C>
struct FoldPiece {
  static constexpr uint32_t kElements = fold_elements(C), kBytes = kElements * size_of(C.partial);

  uint32_t row, column;
  bool exists;
  RawVector<kBytes> parts[C.ranks];

  CLEAVE_DEVICE void place(const FoldParams& p, uint32_t number) {
    exists = number < p.pieces;
    row = p.row.quotient(number);
    column = (number - row * p.row.divisor) * kElements;
  }

  CLEAVE_DEVICE RawVector<kBytes> part_of(const FoldParams& p, uint32_t rank) const {
    const char* const from = static_cast<const char*>(p.partials[rank]);
    return load_vector<kBytes>(from + (row * p.partial_stride + column) * size_of(C.partial), exists);
  }

  CLEAVE_DEVICE void load(const FoldParams& p) {
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < C.ranks; ++r) parts[r] = part_of(p, r);
  }

  CLEAVE_DEVICE float sum_of(const FoldParams& p, uint32_t i) const {
    if constexpr (C.partial == DType::i32) {
      uint32_t sum = parts[0].words[i];
      CLEAVE_UNROLL
      for (uint32_t r = 1; r < C.ranks; ++r) sum += parts[r].words[i];
      const float scale_a = p.scale_a == nullptr ? 1.0f : p.scale_a[row * p.scale_a_stride];
      const float scale_b = p.scale_b == nullptr ? 1.0f : p.scale_b[(column + i) * p.scale_b_stride];
      return scaled(int32_t(sum), scale_a, scale_b);
    } else {
      float sum = element_of<C.partial>(parts[0], i);
      CLEAVE_UNROLL
      for (uint32_t r = 1; r < C.ranks; ++r) sum += element_of<C.partial>(parts[r], i);
      return sum;
    }
  }

  CLEAVE_DEVICE void finish(const FoldParams& p, float inverse_scale_d) const {
    if (!exists) return;
    float values[kElements];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kElements; ++i) values[i] = finished<C>(p, sum_of(p, i), row, column + i, inverse_scale_d);
    const int64_t at = row * p.d_stride + column;
    if constexpr (C.vectors && size_of(C.d) > 1) {
      store_vector<C.d>(static_cast<char*>(p.d) + at * size_of(C.d), values);
    } else {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kElements; ++i) store_element(C.d, p.d, at + i, values[i]);
    }
  }
};

/// The same of what each rank has itself, which it sends to all.
template <FoldConfig C>
CLEAVE_DEVICE void fold_pushed(const FoldParams& p) {
  constexpr uint32_t kPieces = pushed_pieces(C.ranks);
  FoldPiece<C> pieces[kPieces];
  PushedVector own[kPieces], all[kPieces][C.ranks];
  bool exists[kPieces];
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kPieces; ++i) {
    pieces[i].place(p, (i * gridDim.x + blockIdx.x) * kFoldThreads + threadIdx.x);
    own[i] = pieces[i].part_of(p, p.meeting.rank);
    exists[i] = pieces[i].exists;
  }
  const CtaPlace place(p.meeting);
  if (!place.meeting(0).end(exchange(place, own, exists, all))) return;
  const float inverse = C.has_scale_d ? 1.0f / *p.scale_d : 1.0f;
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kPieces; ++i) {
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < C.ranks; ++r) pieces[i].parts[r] = all[i][r];
    pieces[i].finish(p, inverse);
  }
}

/// The same in strips, each a CTA's.
template <FoldConfig C>
CLEAVE_DEVICE void fold_strip(const FoldParams& p) {
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
  const float inverse = C.has_scale_d ? 1.0f / *p.scale_d : 1.0f;
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < Part::kSums; ++i) {
    const uint32_t row = strip.row(i), column = first + strip.column(i);
    if (row < rows) store_element(C.d, p.d, row * p.d_stride + column, finished<C>(p, sums[i], row, column, inverse));
  }
  __syncthreads();
  if (threadIdx.x == 0) strip.count();
}

template <FoldConfig C>
CLEAVE_DEVICE void fold(const FoldParams& p) {
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  if constexpr (C.strip_vectors > 0) return fold_strip<C>(p);
  if constexpr (C.pushed) {
    if (p.meeting.size > 1) return fold_pushed<C>(p);
  }
  if (p.meeting.size > 1 && !meet(p.meeting)) return;
  constexpr uint32_t kAhead = fold_ahead(C);
  const float inverse = C.has_scale_d ? 1.0f / *p.scale_d : 1.0f;
  const uint32_t step = gridDim.x * kFoldThreads;
  CLEAVE_NO_UNROLL
  for (uint32_t first = blockIdx.x * kFoldThreads + threadIdx.x; first < p.pieces; first += kAhead * step) {
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
