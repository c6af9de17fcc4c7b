// Weight gradients of few channels by tensor cores (sm_80 and later), as direct/windows.h has the outputs: windows
// of the images' lines, this time as columns of pixels, times the outputs' gradients.
//
// Roles      all warps copy, then multiply: of warps.m x warps.k, those of one m have the same elements of the filters;
//            k of them take turns at steps of 16 outputs of a line
// Operands   lines of the images and outputs' gradients in two stages of shared memory. For a window's element
//            mma.sync's registers hold neighbouring outputs, which lie a window apart: two loads each
// Split      K: CTAs of the same filters take turns at tiles of outputs
// Sums       float32; a warp's, then those of a CTA in the order of its warps, then of the slices
//            (split_k/block_slices.h)
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/direct/window_lines.h"
#include "cleave/epilogue/store_sum.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/ptx/shared.h"
#include "cleave/split_k/block_slices.h"

namespace cleave {

template <GemmConfig C>
class DirectWindowsWgrad {
  static constexpr DirectConfig D = C.direct;
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kStep = window_step(D), kRun = window_run(D), kLineBytes = window_words(C) * 4;
  static constexpr uint32_t kWidth = D.strips * kWindowStrip, kSteps = C.tile.m / 16;
  static constexpr uint32_t kPixelBytes = window_gradient_bytes(C), kGradients = window_stage_bytes(C);
  static constexpr uint32_t kStageBytes = kGradients + C.tile.m * kPixelBytes;
  static constexpr uint32_t kRowBlocks = window_row_blocks(C), kColBlocks = C.tile.n / 8;
  static constexpr uint32_t kFilter = window_filter_elements(D), kMade = direct_made(C);
  static_assert(size_of(kType) == 2 && C.warps.m * C.warps.k * 32 == kDirectThreads && kColBlocks % 2 == 0);

 public:
  CLEAVE_DEVICE DirectWindowsWgrad(const Params<C>& p, float* shared)
      : p_(p), shared_(shared), smem_(ptx::shared_address(shared)), block_(own_slice<C>(p.shape).block) {
    const uint32_t first = threadIdx.x / 32 % C.warps.m * kRowBlocks * 16 + lane_ / 4;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2 * kRowBlocks; ++i) {
      const uint32_t k = first + i * 8, line = k / kRun;
      // Others are nobody's.
      element_[i] = line < D.height.taps ? line * D.height.dilation * kLineBytes + k % kRun * 2 : 0;
    }
  }

  CLEAVE_DEVICE void run() {
    uint32_t next = first_tile<C>(p_.shape), stage = smem_;
    load(next, stage);
    float sums[kRowBlocks][kColBlocks][4] = {};
    for (uint32_t cta = next; cta < p_.shape.tiles; cta = next) {
      ptx::copy_async_wait<0>();
      __syncthreads();  // the other stage's readers are done, too
      next = cta + gridDim.x;
      const uint32_t other = 2 * smem_ + kStageBytes - stage;
      load(next, other);
      multiply(locate(p_.shape, cta), stage, sums);
      stage = other;
    }
    ptx::copy_async_wait<0>();
    add_warps(sums);
    add_slices<C, kMade>(p_, shared_, [this](uint32_t i, float sum) { store(i, sum); });
  }

 private:
  /// A tile's lines, and its outputs' gradients: zeros past the ends of lines and filters.
  CLEAVE_DEVICE void load(uint32_t cta, uint32_t stage) const {
    if (cta < p_.shape.tiles) {
      const DirectTile tile = locate(p_.shape, cta);
      load_window_lines<C>(p_.shape, p_.b, tile, stage);
      constexpr uint32_t kPieces = C.tile.n / 8;
      const uint32_t filter0 = block_ * C.tile.n;
      const auto* const gradients = static_cast<const uint16_t*>(p_.a.data);
#pragma unroll 4
      for (uint32_t i = threadIdx.x; i < C.tile.m * kPieces; i += kDirectThreads) {
        const uint32_t pixel = i / kPieces, filter = filter0 + i % kPieces * 8;
        const uint32_t line = tile.row * window_rows(C) + pixel / kWidth,
                       column = tile.column * kWidth + pixel % kWidth;
        const bool exists = line < p_.shape.made[0] && column < p_.shape.made[1] && filter < p_.shape.channels;
        const int64_t at = pixel_number(int64_t(tile.image), line, column, p_.shape.made);
        const uint32_t bytes = exists ? min_of(p_.shape.channels - filter, 8u) * 2 : 0;
        ptx::copy_async<16>(stage + kGradients + pixel * kPixelBytes + i % kPieces * 16,
                            gradients + (exists ? at * p_.a.stride + filter : 0), bytes);
      }
    }
    ptx::copy_async_commit();
  }

  CLEAVE_DEVICE void multiply(const DirectTile& at, uint32_t stage, float (&sums)[kRowBlocks][kColBlocks][4]) const {
    const uint32_t lines = p_.shape.made[0] - at.row * window_rows(C);  // that are left,
    const uint32_t columns = p_.shape.made[1] - at.column * kWidth;     // and outputs of each
    const uint32_t gradients = stage + kGradients + (lane_ / 8 % 2 * 8 + lane_ % 8) * kPixelBytes + lane_ / 16 * 16;
    for (uint32_t step = threadIdx.x / 32 / C.warps.m; step < kSteps; step += C.warps.k) {
      const uint32_t row = step * 16 / kWidth, column = step * 16 % kWidth;
      if (row >= lines) break;
      if (column >= columns) continue;
      const uint32_t pixel = lane_ % 4 * 2;
      const uint32_t from = stage + row * D.height.stride * kLineBytes + (column + pixel) * kStep * 2;
      // Pixels that no output meets may be infinite.
      const uint32_t left = columns - column;
      const uint32_t exist[2] = {pair_mask(pixel, left), pair_mask(pixel + 8, left)};
      uint32_t rows[kRowBlocks][4], cols[kColBlocks / 2][4];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowBlocks; ++i) {
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < 4; ++j) {
          const uint32_t first = from + element_[i * 2 + j % 2] + j / 2 * 8 * kStep * 2;
          rows[i][j] =
              __byte_perm(ptx::load_shared_16(first), ptx::load_shared_16(first + kStep * 2), 0x5410) & exist[j / 2];
        }
      }
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kColBlocks / 2; ++j)
        ptx::ldmatrix<true>(gradients + step * 16 * kPixelBytes + j * 32, cols[j]);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowBlocks; ++i) {
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < kColBlocks; ++j)
          ptx::mma<kType, kType>(sums[i][j], rows[i], cols[j / 2][j % 2 * 2], cols[j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  /// Bits of outputs `first` and its neighbour, of which `count` exist.
  CLEAVE_DEVICE static uint32_t pair_mask(uint32_t first, uint32_t count) {
    return (first < count ? 0x0000ffffu : 0) | (first + 1 < count ? 0xffff0000u : 0);
  }

  /// Into shared memory, filter by filter.
  CLEAVE_DEVICE void add_warps(const float (&sums)[kRowBlocks][kColBlocks][4]) const {
    const uint32_t warp = threadIdx.x / 32, first = warp % C.warps.m * kRowBlocks * 16 + lane_ / 4;
    CLEAVE_NO_UNROLL
    for (uint32_t turn = 0; turn < C.warps.k; ++turn) {
      __syncthreads();
      if (turn != warp / C.warps.m) continue;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowBlocks * kColBlocks * 4; ++i) {
        const uint32_t block = i / 4 / kColBlocks, column = i / 4 % kColBlocks * 8 + lane_ % 4 * 2 + i % 2;
        const int32_t element = filter_element(D, first + block * 16 + i % 4 / 2 * 8);
        if (element < 0) continue;
        float& sum = shared_[column * kFilter + uint32_t(element)];
        const float own = sums[block][i / 4 % kColBlocks][i % 4];
        sum = turn == 0 ? own : sum + own;
      }
    }
    __syncthreads();
  }

  CLEAVE_DEVICE void store(uint32_t i, float sum) const {
    const uint32_t filter = block_ * C.tile.n + i / kFilter, column = i % kFilter;
    if (filter < p_.shape.channels) store_sum<C>(p_.epilogue, filter, column, sum);
  }

  const Params<C>& p_;
  float* shared_;
  const uint32_t smem_, lane_ = threadIdx.x % 32;
  const uint32_t block_;
  uint32_t element_[2 * kRowBlocks];  // where the thread's elements of a window lie in a stage
};

}  // namespace cleave
