// Weight gradients of groups of few channels by tensor cores (sm_80 and later), as direct/shift.h has the outputs:
// pixels lie in shared memory once for all taps, beside the outputs' gradients of the tile's cells.
//
// Roles      all warps copy, then multiply: of warps.m x warps.k, those of one m have the same 16 filters, 16 channels
//            that their groups have, and all taps; k of them take turns at pairs of strips of 8 outputs
// Operands   pixels and outputs' gradients in two stages of shared memory, both the way that ldmatrix turns. A warp
//            goes down its strips: of each line of pixels it reads what it has not read for the line before
// Split      K: CTAs of the same groups take turns at tiles of outputs
// Sums       float32; a warp's, then those of a CTA in the order of its warps, then of the slices
//            (split_k/block_slices.h)
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/direct/shift_pixels.h"
#include "cleave/epilogue/store_sum.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/ptx/shared.h"
#include "cleave/split_k/block_slices.h"

namespace cleave {

template <GemmConfig C>
class DirectShiftWgrad {
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kGroup = C.direct.group, kDepth = C.tile.k;  // filters and channels of a group
  static constexpr uint32_t kTaps = C.direct.height.taps * C.direct.width.taps, kMade = direct_made(C);
  static constexpr uint32_t kRow = shift_sum_row(C);
  static constexpr DirectAxis kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr uint32_t kKept = shift_kept(kDown), kHeld = shift_held(kDown);
  static constexpr uint32_t kParts = shift_wgrad_parts(C);
  static constexpr uint32_t kPixelBytes = shift_pixel_bytes(C), kGradientBytes = shift_gradient_bytes(C);
  static_assert(size_of(kType) == 2 && C.warps.m * C.warps.k * 32 == kDirectThreads && C.tile.n % 16 == 0);
  static_assert(C.warps.m * 16 == C.tile.n * kParts && kDepth % 8 == 0 && kGroup % 8 == 0);

 public:
  CLEAVE_DEVICE DirectShiftWgrad(const Params<C>& p, float* shared)
      : p_(p),
        shared_(shared),
        smem_(ptx::shared_address(shared)),
        columns_(shift_reach(Conv::wgrad, C.direct.width, p.shape.cells[1])),
        strips_(ceil_div(p.shape.cells[1], 8u)),
        block_(own_slice<C>(p.shape).block) {
    const uint32_t of = threadIdx.x / 32 % C.warps.m;
    filter0_ = of / kParts * 16;
    channel0_ = of % kParts * 16;
  }

  CLEAVE_DEVICE void run() {
    uint32_t next = first_tile<C>(p_.shape), stage = smem_ + shift_notes_bytes(C);
    if (threadIdx.x < kShiftZeros / 4) ptx::store_shared_32(smem_ + threadIdx.x * 4, 0);
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
    add_slices<C, kMade>(p_, shared_, [this](uint32_t i, float sum) { store(i, sum); });
  }

 private:
  using WarpSums = float[kTaps][2][4];

  /// A tile's pixels, and its outputs' gradients: zeros where there is no output, or filter.
  CLEAVE_DEVICE void load(uint32_t cta, uint32_t stage) const {
    if (cta < p_.shape.tiles) {
      const DirectTile tile = locate(p_.shape, cta);
      load_shift_pixels<C>(p_.shape, p_.b, tile, stage);
      load_gradients(tile, stage + shift_pixels_bytes(C));
    }
    ptx::copy_async_commit();
  }

  /// Line by line of the tile, each of whole strips.
  CLEAVE_DEVICE void load_gradients(const DirectTile& tile, uint32_t stage) const {
    const uint32_t *const cells = p_.shape.cells, width = strips_ * 8, filter0 = block_ * C.tile.n;
    const uint32_t image0 = tile.image * p_.shape.together, line0 = tile.row * cells[0];
    const uint32_t column0 = tile.column * cells[1], columns = min_of(cells[1], p_.shape.made[1] - column0);
    const int64_t line_elements = p_.shape.made[1] * p_.a.stride;
    const uint16_t* from = static_cast<const uint16_t*>(p_.a.data) + filter0 +
                           pixel_number(int64_t(image0), line0, column0, p_.shape.made) * p_.a.stride;
    for (uint32_t image = 0; image < p_.shape.together; ++image) {
      for (uint32_t line = threadIdx.x / 32; line < cells[0]; line += kDirectThreads / 32) {
        const bool exists = image0 + image < p_.shape.images && line0 + line < p_.shape.made[0];
        load_shift_line<C.tile.n / 8, kGradientBytes>(stage + line * width * kGradientBytes,
                                                      from + line * line_elements, p_.a.stride, width, 0,
                                                      exists ? columns : 0, p_.shape.channels - filter0);
      }
      from += p_.shape.made[0] * line_elements;
      stage += cells[0] * width * kGradientBytes;
    }
  }

  /// Strips of 8 outputs, two at a time, down the tile. Warps that share filters and channels take turns at those, or,
  /// where there are not enough, at parts of their lines.
  CLEAVE_DEVICE void multiply(const DirectTile& tile, uint32_t stage, WarpSums& sums) const {
    const uint32_t images = min_of(p_.shape.together, p_.shape.images - tile.image * p_.shape.together);
    const uint32_t lines = min_of(p_.shape.cells[0], p_.shape.made[0] - tile.row * p_.shape.cells[0]);
    const uint32_t columns = min_of(p_.shape.cells[1], p_.shape.made[1] - tile.column * p_.shape.cells[1]);
    const uint32_t pairs = ceil_div(images * strips_, 2u), turn = threadIdx.x / 32 / C.warps.m;
    const bool whole = pairs % C.warps.k == 0;
    const uint32_t part = whole ? lines : ceil_div(lines, C.warps.k), begin = whole ? 0 : turn * part;
    if (begin >= lines) return;
    for (uint32_t pair = whole ? turn : 0; pair < pairs; pair += whole ? C.warps.k : 1)
      walk(stage, pair * 2, images * strips_, columns, begin, min_of(begin + part, lines), sums);
  }

  /// A tile's: few, so that subtracting is faster than to divide.
  struct Strip {
    uint32_t image = 0, strip = 0;
  };
  CLEAVE_DEVICE Strip find_strip(uint32_t number) const {
    Strip of{0, number};
    while (of.strip >= strips_) of.strip -= strips_, ++of.image;
    return of;
  }

  /// Strips `pair` and `pair` + 1 of `all`: K of 16 is a line of both. What pixels of a line meet taps down the images
  /// stays in registers for the lines that follow.
  CLEAVE_DEVICE void walk(uint32_t stage, uint32_t pair, uint32_t all, uint32_t columns, uint32_t line, uint32_t end,
                          WarpSums& sums) const {
    // 8 x 8 matrices of gradients: cells first, then filters; of pixels: cells, then channels.
    const uint32_t own = pair + lane_ / 16, other = pair + lane_ / 8 % 2;
    const Strip of_gradients = find_strip(own), of_pixels = find_strip(other);
    const uint32_t zeros = smem_;
    uint32_t gradients = zeros, gradient_line = 0;
    if (own < all) {
      gradient_line = strips_ * 8 * kGradientBytes;
      const uint32_t at =
          ((of_gradients.image * p_.shape.cells[0] + line) * strips_ + of_gradients.strip) * 8 + lane_ % 8;
      gradients = stage + shift_pixels_bytes(C) + at * kGradientBytes + (filter0_ + lane_ / 8 % 2 * 8) * 2;
    }
    // What meets no output may be infinite.
    const uint32_t column = of_pixels.strip * 8 + lane_ % 8;
    uint32_t pixels = zeros, down = 0, across = 0;
    if (other < all && column < columns) {
      down = columns_ * kPixelBytes;
      across = C.direct.width.dilation * kPixelBytes;
      const uint32_t place = shift_place(C, p_.shape, {of_pixels.image, line, column});
      pixels = stage + (filter0_ / kGroup * kDepth + channel0_ + lane_ / 16 * 8) * 2 + place * kPixelBytes;
    }
    uint32_t held[kHeld][kAcross.taps][4];
    const auto load_tap = [&](uint32_t r, uint32_t s, uint32_t (&to)[4]) {
      ptx::ldmatrix<true>(pixels + r * kDown.dilation * down + s * across, to);
    };
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < kKept; ++r) {
      CLEAVE_UNROLL
      for (uint32_t s = 0; s < kAcross.taps; ++s) load_tap(r, s, held[r][s]);
    }
    CLEAVE_NO_UNROLL
    while (line < end) {
      CLEAVE_UNROLL
      for (uint32_t step = 0; step < kHeld; ++step) {  // after so many each tap is where it was
        if (line == end) return;
        uint32_t rows[4];
        ptx::ldmatrix<true>(gradients, rows);
        CLEAVE_UNROLL
        for (uint32_t s = 0; s < kAcross.taps && kKept == 0; ++s) load_tap(0, s, held[0][s]);
        CLEAVE_UNROLL
        for (uint32_t r = 0; r < kDown.taps; ++r) {
          CLEAVE_UNROLL
          for (uint32_t s = 0; s < kAcross.taps; ++s) {
            uint32_t (&cols)[4] = held[shift_held_place(kDown, step, r)][s];
            float (&of_tap)[2][4] = sums[r * kAcross.taps + s];
            ptx::mma<kType, kType>(of_tap[0], rows, cols[0], cols[1]);
            ptx::mma<kType, kType>(of_tap[1], rows, cols[2], cols[3]);
            if (r + kHeld < kDown.taps) load_tap(r + kHeld, s, cols);
          }
        }
        gradients += gradient_line;
        pixels += kDown.stride * down;
        ++line;
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
  const uint32_t columns_, strips_;  // of a line of a tile: gathered pixels, and strips of outputs
  const uint32_t block_;
  uint32_t filter0_, channel0_;  // the warp's: of the CTA's filters, and after the first channel of their group
};

}  // namespace cleave
