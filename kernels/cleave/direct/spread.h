// Outputs of few filters, and data gradients of few channels, by tensor cores (sm_80 and later): gathered pixels are
// read once, multiplied with all taps of the filters (config/direct_spread.h), and only the products are moved to where
// taps meet.
//
// Roles      a CTA goes down the lines of a strip of the gathered images, `tile.m` pixels a step. Its warps are
//            warps.m x warps.n: the first share the pixels, the others the columns, taps and channels. Then its threads
//            have the pixels of D whose parts are all there
// Operands   gathered pixels from global memory to mma.sync's registers, the next ones on their way: a thread loads
//            16 bytes of a pixel, so that K is in another order than in memory, of filters as well. Filters in shared
//            memory
// Sums       float32: over gathered channels, then of a pixel's taps in their order
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/load_global.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <GemmConfig C>
class DirectSpread {
  static constexpr DType kType = C.operands.a;
  static constexpr Conv kKind = C.conv.kind;
  static constexpr DirectAxis kDeep = C.direct.depth, kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr GatheredSpan kDownSpan = cell_span(kKind, kDown), kAcrossSpan = cell_span(kKind, kAcross);
  static constexpr uint32_t kChannels = C.tile.n, kColumns = spread_columns(C), kBlocks = spread_blocks(C);
  static constexpr uint32_t kWidth = spread_width(C), kLines = spread_lines(C), kRing = spread_ring(C);
  static constexpr uint32_t kReach = cell_reach(kKind, kDown);
  static constexpr uint32_t kFilterBytes = spread_filter_bytes(C), kLine = spread_line(C);
  static constexpr uint32_t kRows = kSpreadRows / 8;  // of a thread
  static constexpr uint32_t kParts = spread_parts(C), kDepth = spread_depth(C), kTaps = kDown.taps * kAcross.taps;
  // Loads of a row on their way: as many as registers allow.
  static constexpr uint32_t kAhead = kDepth % 2 == 0 ? 2 : kDepth % 3 == 0 && kBlocks < 5 ? 3 : 1;
  static_assert(size_of(kType) == 2 && C.warps.m * C.warps.n * 32 == kDirectThreads && C.direct.vector == C.tile.n);
  static_assert(kDeep.stride == 1 && (kKind == Conv::dgrad || (kDown.stride == 1 && kAcross.stride == 1)));
  static_assert(C.warps.m * kSpreadRows == C.tile.m && C.tile.m % kWidth == 0 && C.tile.k % 8 == 0);

 public:
  CLEAVE_DEVICE DirectSpread(const Params<C>& p, uint8_t* shared)
      : p_(p),
        filters_(ptx::shared_address(shared)),
        parts_(reinterpret_cast<float*>(shared + spread_filters_bytes(C))),
        tile_(locate(p.shape, blockIdx.x)) {
    uint32_t plane;
    p.shape.depths.divmod(tile_.image, image_, plane);
    first_plane_ = first_gathered(kKind, kDeep, plane, p.shape.pad_depth);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      const DirectAxis& axis = i == 0 ? kDown : kAcross;
      first_cell_[i] = (i == 0 ? tile_.row : tile_.column) * p.shape.cells[i];
      cells_[i] = min_of(p.shape.cells[i], ceil_div(p.shape.made[i], axis.stride) - first_cell_[i]);
      const GatheredSpan& span = i == 0 ? kDownSpan : kAcrossSpan;
      first_gathered_[i] = first_gathered(kKind, axis, first_cell_[i] * axis.stride, p.shape.pad[i]) + span.first;
    }
  }

  CLEAVE_DEVICE void run() {
    const PixelStore<C> store(p_, tile_.channel * kChannels);
    const uint32_t steps = ceil_div(cells_[0] + kReach, kLines);
    Vectors own;
    CLEAVE_UNROLL
    for (uint32_t depth = 0; depth < kAhead; ++depth) load(0, depth, own[depth]);
    load_filters();
    __syncthreads();
    for (uint32_t step = 0; step < steps; ++step) {
      float sums[kSpreadRows / 16][kBlocks][4] = {};
      CLEAVE_NO_UNROLL
      for (uint32_t depth = 0; depth < kDepth; depth += kAhead) {
        const bool last = depth + kAhead == kDepth;
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kAhead; ++i) {
          if (kDeep.taps == 1 || is_inside(plane_of(depth + i), p_.shape.met_depth)) multiply(depth + i, own[i], sums);
          if (!last || step + 1 < steps) load(step + last, last ? i : depth + kAhead + i, own[i]);
        }
      }
      keep_parts(step, sums);
      __syncthreads();
      make_pixels(step, store);
      __syncthreads();  // before others overwrite the ring's oldest lines
    }
  }

 private:
  /// 8 channels of each of a thread's rows; as many as are on their way.
  using Vector = uint32_t[kRows][4];
  using Vectors = Vector[kAhead];

  /// A thread's row of the product: its pixel in a step, across and down.
  CLEAVE_DEVICE uint32_t pixel(uint32_t row) const {
    return threadIdx.x / 32 / C.warps.n * kSpreadRows + row * 8 + lane_ / 4;
  }
  /// Whether a step's pixel is one that the tile's cells meet.
  CLEAVE_DEVICE bool exists(uint32_t step, uint32_t row) const {
    const uint32_t line = step * kLines + pixel(row) / kWidth, column = pixel(row) % kWidth;
    return line < cells_[0] + kReach && column < cells_[1] + kAcrossSpan.size() - 1 &&
           is_inside(first_gathered_[0] + int32_t(line), p_.shape.gathered[0]) &&
           is_inside(first_gathered_[1] + int32_t(column), p_.shape.gathered[1]);
  }

  /// The gathered plane of a part of K.
  CLEAVE_DEVICE int32_t plane_of(uint32_t depth) const {
    return first_plane_ + gathered_at(kKind, kDeep, 0, kDeep.taps == 1 ? 0 : depth / kParts);
  }

  CLEAVE_DEVICE void load(uint32_t step, uint32_t depth, Vector& to) const {
    const auto* const pixels = static_cast<const uint16_t*>(p_.a.data);
    const uint32_t channel = (kDeep.taps == 1 ? depth : depth % kParts) * kSpreadDepth + lane_ % 4 * 8;
    const int32_t z = plane_of(depth);
    const bool there = channel < C.tile.k && is_inside(z, p_.shape.met_depth);
    const int64_t plane = int64_t(image_) * p_.shape.met_depth + z;
    CLEAVE_UNROLL
    for (uint32_t row = 0; row < kRows; ++row) {
      const int32_t y = first_gathered_[0] + int32_t(step * kLines + pixel(row) / kWidth);
      const int32_t x = first_gathered_[1] + int32_t(pixel(row) % kWidth);
      const int64_t from = pixel_number(plane, y, x, p_.shape.gathered) * p_.a.stride;
      ptx::load_global_if<16>(to[row], pixels + from + channel, there && exists(step, row));
    }
  }

  /// By all threads: column by column, in the order of memory; zeros past the last.
  CLEAVE_DEVICE void load_filters() const {
    if constexpr (kKind == Conv::dgrad) {
      turn_filters();
    } else {
      copy_filters();
    }
  }

  /// The filter's tap that a part of K and a column are of.
  CLEAVE_DEVICE static uint32_t tap(uint32_t part, uint32_t column) {
    return part / kParts * kTaps + column / kChannels;
  }

  /// A column's channels of outputs' filters follow each other.
  CLEAVE_DEVICE void copy_filters() const {
    constexpr uint32_t kPieces = kDepth * kSpreadDepth / 8, kCount = C.warps.n * kBlocks * 8 * kPieces;
    const auto* const from = static_cast<const uint16_t*>(p_.b.data) + tile_.channel * kChannels * p_.b.stride;
    for (uint32_t at = threadIdx.x; at < kCount; at += kDirectThreads) {
      const uint32_t column = at / kPieces, place = at % kPieces, part = place * 8 / kSpreadDepth;
      const uint32_t channel = part % kParts * kSpreadDepth + place * 8 % kSpreadDepth;
      const bool there = column < kColumns && channel < C.tile.k;
      const uint16_t* const piece = from + column % kChannels * p_.b.stride + tap(part, column) * C.tile.k + channel;
      ptx::copy_async<16>(filters_ + column * kFilterBytes + place * 16, there ? piece : from, there ? 16 : 0);
    }
    ptx::copy_async_commit();
    ptx::copy_async_wait<0>();
  }

  /// Those of data gradients' filters lie apart.
  CLEAVE_DEVICE void turn_filters() const {
    constexpr uint32_t kPairs = kDepth * kSpreadDepth / 2, kCount = C.warps.n * kBlocks * 8 * kPairs;
    constexpr uint32_t kAtOnce = 8;  // on their way
    const auto* const from = static_cast<const uint16_t*>(p_.b.data) + tile_.channel * kChannels;
    for (uint32_t begin = threadIdx.x; begin < kCount; begin += kAtOnce * kDirectThreads) {
      uint32_t values[kAtOnce][2];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t at = begin + i * kDirectThreads, column = at / kPairs, place = at % kPairs * 2;
        const uint32_t part = place / kSpreadDepth, filter = part % kParts * kSpreadDepth + place % kSpreadDepth;
        const uint16_t* const pair =
            from + filter * p_.b.stride + tap(part, column) * p_.shape.channels + column % kChannels;
        const bool there = column < kColumns && filter < C.tile.k;  // of which there are an even number
        ptx::load_global_if<2>(&values[i][0], pair, there);
        ptx::load_global_if<2>(&values[i][1], pair + p_.b.stride, there);
      }
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t at = begin + i * kDirectThreads;
        if (at < kCount)
          ptx::store_shared_32(filters_ + at / kPairs * kFilterBytes + at % kPairs * 4,
                               values[i][0] | values[i][1] << 16);
      }
    }
  }

  CLEAVE_DEVICE void multiply(uint32_t depth, const Vector& own, float (&sums)[kSpreadRows / 16][kBlocks][4]) const {
    const uint32_t filters = filters_ + (threadIdx.x / 32 % C.warps.n * kBlocks * 8 + lane_ / 4) * kFilterBytes +
                             lane_ % 4 * 16 + depth * kSpreadDepth * 2;
    CLEAVE_UNROLL
    for (uint32_t block = 0; block < kBlocks; ++block) {
      uint32_t of_filters[4];
      ptx::load_shared_128(filters + block * 8 * kFilterBytes, of_filters);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; i += 2) {
        CLEAVE_UNROLL
        for (uint32_t r = 0; r < kSpreadRows / 16; ++r) {
          const auto& upper = own[r * 2];
          const auto& lower = own[r * 2 + 1];
          const uint32_t rows[4] = {upper[i], lower[i], upper[i + 1], lower[i + 1]};
          ptx::mma<kType, kType>(sums[r][block], rows, of_filters[i], of_filters[i + 1]);
        }
      }
    }
  }

  /// Where a column's part of a step's pixel lies; `line` counts those of the tile.
  CLEAVE_DEVICE float* part(uint32_t line, uint32_t column, uint32_t pixel) const {
    return parts_ + (line % kRing * kColumns + column) * kLine + pixel;
  }

  /// Filters may be infinite where there is no pixel.
  CLEAVE_DEVICE void keep_parts(uint32_t step, const float (&sums)[kSpreadRows / 16][kBlocks][4]) const {
    const uint32_t column0 = threadIdx.x / 32 % C.warps.n * kBlocks * 8 + lane_ % 4 * 2;
    CLEAVE_UNROLL
    for (uint32_t row = 0; row < kRows; ++row) {
      const bool there = exists(step, row);
      float* const to = part(step * kLines + pixel(row) / kWidth, column0, pixel(row) % kWidth);
      CLEAVE_UNROLL
      for (uint32_t block = 0; block < kBlocks; ++block) {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < 2; ++i) {
          if (column0 + block * 8 + i < kColumns)
            to[(block * 8 + i) * kLine] = there ? sums[row / 2][block][row % 2 * 2 + i] : 0.0f;
        }
      }
    }
  }

  /// Those of the cells whose last parts this step brought. Threads have a cell each, and take turns at its pixels.
  CLEAVE_DEVICE void make_pixels(uint32_t step, const PixelStore<C>& store) const {
    constexpr uint32_t kTurns = kDirectThreads / C.tile.m;
    const uint32_t turn = threadIdx.x / C.tile.m, at = threadIdx.x % C.tile.m, column = at % kWidth;
    const uint32_t line = step * kLines + at / kWidth - kReach;  // wraps before the first cell
    if (line >= cells_[0] || column >= cells_[1]) return;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kDown.stride; ++i) {
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kAcross.stride; ++j) {
        const uint32_t y = (first_cell_[0] + line) * kDown.stride + i;
        const uint32_t x = (first_cell_[1] + column) * kAcross.stride + j;
        if ((i * kAcross.stride + j) % kTurns != turn || y >= p_.shape.made[0] || x >= p_.shape.made[1]) continue;
        float sums[kChannels] = {};
        CLEAVE_UNROLL
        for (uint32_t r = 0; r < kDown.taps; ++r) {
          const int32_t down = gathered_at(kKind, kDown, i, r);
          if (down == kApart) continue;
          const float* const parts =
              part(line + uint32_t(down - kDownSpan.first), r * kAcross.taps * kChannels, column);
          CLEAVE_UNROLL
          for (uint32_t s = 0; s < kAcross.taps; ++s) {
            const int32_t across = gathered_at(kKind, kAcross, j, s);
            if (across == kApart) continue;
            CLEAVE_UNROLL
            for (uint32_t c = 0; c < kChannels; ++c)
              sums[c] += parts[(s * kChannels + c) * kLine + uint32_t(across - kAcrossSpan.first)];
          }
        }
        store(pixel_number(tile_.image, y, x, p_.shape.made), sums);
      }
    }
  }

  const Params<C>& p_;
  const uint32_t filters_, lane_ = threadIdx.x % 32;
  float* const parts_;
  const DirectTile tile_;
  uint32_t first_cell_[2], cells_[2];  // down, and along a line: the first of the tile, and how many there are
  int32_t first_gathered_[2];          // what they meet first
  uint32_t image_;                     // of all its planes,
  int32_t first_plane_;                // and what they meet first
};

}  // namespace cleave
