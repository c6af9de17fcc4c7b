// B for the streamed kernel: k blocks of a tile's columns that stay in shared memory for as long as work tiles need the
// same ones, of a product with few columns from the first tile to the last. Where they do not all fit, they come in
// chunks.
//
// A k block has a line for each column of D, so that fewer of them leave room for more of K. A line's vectors of 16
// bytes are swizzled, eight by eight, for ldmatrix.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/load_global.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/ptx/shared.h"
#include "cleave/schedule/schedule.h"
#include "cleave/tile/named_barriers.h"

namespace cleave {

template <GemmConfig C>
class ResidentColumns {
  static constexpr uint32_t kElement = size_of(C.operands.b), kLineBytes = C.tile.k * kElement;
  static constexpr uint32_t kVector = 16 / kElement;        // elements
  static constexpr uint32_t kPerLine = C.tile.k / kVector;  // vectors
  static constexpr uint32_t kThreads = cta_threads(C);
  static constexpr uint32_t kPieces = C.tile.n / 8;
  static_assert(kPerLine % 8 == 0, "whole swizzle atoms");

 public:
  CLEAVE_DEVICE ResidentColumns(const GemmParams& p, uint32_t smem) : p_(p), smem_(smem + smem_plan(C).b) {}

  /// How many of a work tile's k blocks fit beside each other: whole rounds of the warps that cut K.
  CLEAVE_DEVICE uint32_t chunk() const { return chunk_; }

  /// From here on columns are those from `n0` to `n_end`, at most as many as the tile has.
  CLEAVE_DEVICE void start(const WorkTile& work, uint32_t n0, uint32_t n_end) {
    if (n0 == n0_ && work.batch == batch_) return;
    const uint32_t columns = min_of(n_end - n0, C.tile.n);
    n0_ = n0, batch_ = work.batch, columns_ = columns, count_ = 0;
    chunk_ = C.tile.stages * C.tile.n / columns / C.warps.k * C.warps.k;
    const uint32_t lane = threadIdx.x % 32;
    CLEAVE_UNROLL
    for (uint32_t piece = 0; piece < kPieces; ++piece) {
      // Columns that D has not are any: their sums are not stored.
      const uint32_t column = piece * 8 + lane % 8, line = column < columns ? column : 0;
      from_[piece] = smem_ + line * kLineBytes + (lane / 8 ^ line % 8) * 16;
    }
  }

  /// Has the work tile's k blocks from `first` on, `count` of them, in shared memory. By all threads of the CTA.
  CLEAVE_DEVICE void load(const WorkTile& work, uint32_t first, uint32_t count) {
    const uint32_t k_first = work.k_block(first);
    if (count == count_ && k_first == k_first_) return;
    count_ = count, k_first_ = k_first;
    ptx::named_barrier_sync(kMultiplyBarrier, kThreads);  // nobody reads what was there
    const char* const b = static_cast<const char*>(p_.b.data) + int64_t(batch_) * p_.b.batch_stride * kElement;
    for (uint32_t line = thread_ / kPerLine; line < count * columns_; line += kThreads / kPerLine) {
      const uint32_t block = line / columns_, column = line - block * columns_, vector = thread_ % kPerLine;
      const uint32_t k = work.k_block(first + block) * C.tile.k + vector * kVector;
      const uint32_t valid = k < p_.size.k ? min_of(p_.size.k - k, kVector) * kElement : 0;
      const char* const from = b + (int64_t(n0_ + column) * p_.b.stride + (valid > 0 ? k : 0)) * kElement;
      copy(smem_ + line * kLineBytes + (vector & 8 | (vector ^ column) & 7) * 16, from, valid);
    }
    ptx::copy_async_commit();
    ptx::copy_async_wait<0>();
    ptx::named_barrier_sync(kMultiplyBarrier, kThreads);
  }

  /// Columns 8 * piece to 8 * piece + 7 of elements 32 * quarter to 32 * quarter + 31 of a k block, counted from the
  /// chunk's first: mma's B of two steps.
  CLEAVE_DEVICE void fragment(uint32_t block, uint32_t piece, uint32_t quarter, uint32_t (&v)[4]) const {
    const uint32_t at = from_[piece] + block * columns_ * kLineBytes;
    ptx::ldmatrix<false>((at ^ quarter % 2 * 64) + quarter / 2 * 128, v);
  }

 private:
  CLEAVE_DEVICE static void copy(uint32_t to, const char* from, uint32_t valid) {
    constexpr uint32_t kBytes = C.operands.load_bytes_b;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 16; i += kBytes) {
      const uint32_t left = valid > i ? min_of(valid - i, kBytes) : 0;
      if constexpr (kBytes >= 4) {
        ptx::copy_async<kBytes>(to + i, left > 0 ? from + i : from, left);
      } else {
        uint32_t element;
        ptx::load_global_if<2>(&element, from + i, left > 0);
        ptx::store_shared_16(to + i, uint16_t(element));
      }
    }
  }

  const GemmParams& p_;
  const uint32_t smem_, thread_ = threadIdx.x;
  uint32_t n0_ = ~0u, batch_ = 0, columns_ = 1, chunk_ = 0;
  uint32_t k_first_ = 0, count_ = 0;  // of the chunk that is there
  uint32_t from_[kPieces];
};

}  // namespace cleave
