// Weight gradients of groups of few channels by tensor cores (sm_80 and later), as direct/shift.h has the outputs:
// pixels lie in shared memory once for all taps, beside the outputs' gradients of the tile's cells.
//
// Roles      all warps copy, then multiply: of warps.m x warps.k, those of one m have the same 16 filters, 16 channels
//            that their groups have, and all taps; k of them take turns at steps of 16 cells
// Operands   pixels and outputs' gradients in two stages of shared memory, both the way that ldmatrix turns
// Split      K: CTAs of the same groups take turns at tiles of outputs
// Sums       float32; a warp's, then those of a CTA in the order of its warps, then of the slices
//            (split_k/slice_sums.h)
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/direct/shift_pixels.h"
#include "cleave/epilogue/store_sum.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/split_k/slice_sums.h"

namespace cleave {

template <GemmConfig C>
class DirectShiftWgrad {
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kGroup = C.direct.group, kDepth = C.tile.k;  // filters and channels of a group
  static constexpr uint32_t kTaps = C.direct.height.taps * C.direct.width.taps, kMade = direct_made(C);
  static constexpr uint32_t kRow = shift_sum_row(C);
  static constexpr uint32_t kParts = shift_wgrad_parts(C), kSteps = C.tile.m / 16;
  static constexpr uint32_t kPixelBytes = shift_pixel_bytes(C), kGradientBytes = shift_gradient_bytes(C);
  static_assert(size_of(kType) == 2 && C.warps.m * C.warps.k * 32 == kDirectThreads && C.tile.n % 16 == 0);
  static_assert(C.warps.m * 16 == C.tile.n * kParts && kDepth % 8 == 0 && kGroup % 8 == 0);

 public:
  CLEAVE_DEVICE DirectShiftWgrad(const Params<C>& p, float* shared)
      : p_(p),
        shared_(shared),
        smem_(ptx::shared_address(shared)),
        columns_(shift_reach(Conv::wgrad, C.direct.width, p.shape.cells[1])) {
    p.shape.blocks.divmod(blockIdx.x, slice_, block_);
    const uint32_t of = threadIdx.x / 32 % C.warps.m;
    filter0_ = of / kParts * 16;
    channel0_ = of % kParts * 16;
  }

  CLEAVE_DEVICE void run() {
    const uint32_t slices = gridDim.x / p_.shape.blocks.divisor;
    uint32_t next = blockIdx.x, stage = smem_ + shift_notes_bytes(C);
    note_shift_cells<C>(p_.shape, smem_);
    __syncthreads();
    load(next, stage);
    WarpSums sums = {};
    for (uint32_t cta = next; cta < p_.shape.tiles; cta = next) {
      ptx::copy_async_wait<0>();
      __syncthreads();  // the other stage's readers are done, too
      next = cta + gridDim.x;
      const uint32_t other = 2 * (smem_ + shift_notes_bytes(C)) + shift_stage_bytes(C) - stage;
      load(next, other);
      multiply(locate(p_.shape, cta), stage, sums);
      stage = other;
    }
    ptx::copy_async_wait<0>();
    add_warps(sums);
    if constexpr (C.schedule.split == SplitKMode::parallel) {
      if (!SliceSums<C, kMade>(p_, shared_).add(block_, slice_, slices)) return;
    }
    for (uint32_t i = threadIdx.x; i < kMade; i += kDirectThreads) store(i, shared_[i]);
  }

 private:
  using WarpSums = float[kTaps][2][4];

  /// Whether a row's cell is an output, and which.
  CLEAVE_DEVICE bool locate_output(const DirectTile& tile, uint32_t row, int64_t& pixel) const {
    const ShiftCell cell = noted_shift_cell(smem_, row);
    const uint32_t image = tile.image * p_.shape.together + cell.image;
    const uint32_t line = tile.row * p_.shape.cells[0] + cell.line;
    const uint32_t column = tile.column * p_.shape.cells[1] + cell.column;
    pixel = pixel_number(int64_t(image), line, column, p_.shape.made);
    return cell.image < p_.shape.together && image < p_.shape.images && line < p_.shape.made[0] &&
           column < p_.shape.made[1];
  }

  /// A tile's pixels, and its outputs' gradients: zeros where there is no output, or filter.
  CLEAVE_DEVICE void load(uint32_t cta, uint32_t stage) const {
    if (cta < p_.shape.tiles) {
      const DirectTile tile = locate(p_.shape, cta);
      load_shift_pixels<C>(p_.shape, p_.b, tile, stage);
      constexpr uint32_t kPieces = C.tile.n / 8;
      const auto* const gradients = static_cast<const uint16_t*>(p_.a.data);
#pragma unroll 4
      for (uint32_t i = threadIdx.x; i < C.tile.m * kPieces; i += kDirectThreads) {
        const uint32_t row = i / kPieces, filter = block_ * C.tile.n + i % kPieces * 8;
        int64_t pixel;
        const bool exists = locate_output(tile, row, pixel) && filter < p_.shape.channels;
        ptx::copy_async<16>(stage + shift_pixels_bytes(C) + row * kGradientBytes + i % kPieces * 16,
                            gradients + (exists ? pixel * p_.a.stride + filter : 0), exists ? 16 : 0);
      }
    }
    ptx::copy_async_commit();
  }

  CLEAVE_DEVICE void multiply(const DirectTile& tile, uint32_t stage, WarpSums& sums) const {
    // 8 x 8 matrices of gradients: cells first, then filters; of pixels: cells, then channels.
    const uint32_t gradients = stage + shift_pixels_bytes(C) + (lane_ / 16 * 8 + lane_ % 8) * kGradientBytes +
                               (filter0_ + lane_ / 8 % 2 * 8) * 2;
    const uint32_t pixels = stage + (filter0_ / kGroup * kDepth + channel0_ + lane_ / 16 * 8) * 2;
    for (uint32_t step = threadIdx.x / 32 / C.warps.m; step < kSteps; step += C.warps.k) {
      const uint32_t row = step * 16 + lane_ % 16;
      int64_t pixel;
      // What meets no output may be infinite.
      const bool exists = locate_output(tile, row, pixel);
      const uint32_t place = shift_place(C, p_.shape, noted_shift_cell(smem_, row));
      const uint32_t from = exists ? pixels + place * kPixelBytes : smem_, line = exists ? columns_ : 0;
      const uint32_t column = exists ? kPixelBytes : 0;
      uint32_t rows[4];
      ptx::ldmatrix<true>(gradients + step * 16 * kGradientBytes, rows);
      CLEAVE_UNROLL
      for (uint32_t tap = 0; tap < kTaps; ++tap) {
        const uint32_t r = tap / C.direct.width.taps * C.direct.height.dilation;
        const uint32_t s = tap % C.direct.width.taps * C.direct.width.dilation;
        uint32_t cols[4];
        ptx::ldmatrix<true>(from + (r * line + s) * column, cols);
        ptx::mma<kType, kType>(sums[tap][0], rows, cols[0], cols[1]);
        ptx::mma<kType, kType>(sums[tap][1], rows, cols[2], cols[3]);
      }
    }
  }

  /// Into shared memory, filter by filter. Where filters are two groups', each meets its own group's channels.
  CLEAVE_DEVICE void add_warps(const WarpSums& sums) const {
    CLEAVE_NO_UNROLL
    for (uint32_t turn = 0; turn < C.warps.k; ++turn) {
      __syncthreads();
      if (turn != threadIdx.x / 32 / C.warps.m) continue;
      CLEAVE_UNROLL
      for (uint32_t block = 0; block < 4; ++block) {  // of 8 filters and 8 channels
        const uint32_t half = block / 2, filter = filter0_ + half * 8 + lane_ / 4;
        const uint32_t channel = filter0_ / kGroup * kDepth + channel0_ + block % 2 * 8 + lane_ % 4 * 2;
        if (channel / kDepth != filter / kGroup) continue;
        auto* const to = reinterpret_cast<float2*>(shared_ + filter * kRow + channel % kDepth);
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kTaps; ++i) {
          float2& sum = to[i * kDepth / 2];
          const float x = sums[i][block % 2][half * 2], y = sums[i][block % 2][half * 2 + 1];
          sum = turn == 0 ? float2{x, y} : float2{sum.x + x, sum.y + y};
        }
      }
    }
    __syncthreads();
  }

  CLEAVE_DEVICE void store(uint32_t i, float sum) const {
    const uint32_t filter = block_ * C.tile.n + i / kRow, column = i % kRow;
    if (filter < p_.shape.channels && column < kTaps * kDepth) store_sum<C>(p_.epilogue, filter, column, sum);
  }

  const Params<C>& p_;
  float* shared_;
  const uint32_t smem_, lane_ = threadIdx.x % 32;
  const uint32_t columns_;  // gathered, of a line of a tile
  uint32_t block_ = 0, slice_ = 0;
  uint32_t filter0_, channel0_;  // the warp's: of the CTA's filters, and after the first channel of their group
};

}  // namespace cleave
