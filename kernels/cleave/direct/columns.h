// Convolutions of narrow groups, depthwise ones above all, and their data gradients, by multiply-adds (sm_80 and
// later), line by line down the images: each gathered pixel is read, and made a float32, once for all lines it meets.
//
// Roles      a thread has `direct.vector` channels of a strip of `tile.m` neighbours of a line, and goes down from cell
//            to cell (config/direct_columns.h); neighbouring threads have neighbouring channels, then the next strips,
//            also of the next image. CTAs have even shares of all columns' cells, and keep to their channels
// Operands   pixels through registers (direct/column_lines.h) or through rings of shared memory (direct/column_ring.h).
//            Filters in registers, as far as there are enough, or in shared memory
// Sums       float32, in registers, line by line and along a line
#pragma once

#include "cleave/config/direct_columns.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/column_share.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/core/either.h"
#include "cleave/direct/column_lines.h"
#include "cleave/direct/column_ring.h"
#include "cleave/direct/pixel_filters.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/ptx/barrier.h"

namespace cleave {

template <GemmConfig C>
class DirectColumns {
  static constexpr Conv kKind = C.conv.kind;
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kStrip = C.tile.m, kGroup = C.direct.group;
  static constexpr uint32_t kLanes = C.tile.n / kVector, kPlaces = column_places(C);
  static constexpr DirectAxis kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr GatheredSpan kSpan = gathered_span(kKind, kAcross, kStrip), kReach = shift_span(kKind, kDown);
  static constexpr uint32_t kPixels = kSpan.size();
  static constexpr uint32_t kCell = shift_cell(kKind, kDown), kLines = shift_step(kKind, kDown);  // made, gathered
  static constexpr uint32_t kSteps = column_steps(C);
  static constexpr bool kHolds = holds_filters(C);
  static constexpr uint32_t kTaps = kDown.taps * kAcross.taps;
  static_assert(C.tile.n % kVector == 0 && kVector % kGroup == 0 && kPlaces > 0 && kPixels <= 32);

 public:
  CLEAVE_DEVICE DirectColumns(const Params<C>& p, float* shared)
      : p_(p), filters_(p, shared), lines_(p, ptx::shared_address(shared) + column_filter_bytes(C)) {}

  CLEAVE_DEVICE void run() {
    uint32_t slice = 0, block = 0;
    p_.shape.blocks.divmod(blockIdx.x, slice, block);
    const uint32_t place = threadIdx.x / kLanes;
    lane_ = threadIdx.x % kLanes * kVector;
    channel_ = block * C.tile.n + lane_;
    const bool exists = place < kPlaces && channel_ < p_.shape.channels;
    if (exists) lines_.begin(slice, place, channel_);
    filters_.load(block * C.tile.n);
    __syncthreads();
    if (!exists) return;
    if constexpr (kHolds) {
      CLEAVE_UNROLL
      for (uint32_t tap = 0; tap < kTaps; ++tap) {
        CLEAVE_UNROLL
        for (uint32_t other = 0; other < kGroup; ++other) filters_.read(tap, other, lane_, held_[tap][other]);
      }
    }
    const PixelStore<C> store(p_, channel_);
    walk_columns(p_.shape, slice, [&](uint32_t column, uint32_t cell, uint32_t cells) {
      go_down(column * kPlaces + place, cell, cells, store);
    });
  }

 private:
  using Lines = Either<has_column_ring(C), ColumnRing<C>, ColumnLines<C>>;
  using CellSums = float[kCell][kStrip][kVector];

  /// Makes so many cells of a column of strips, from `cell` on.
  CLEAVE_DEVICE void go_down(uint32_t strip, uint32_t cell, uint32_t cells, const PixelStore<C>& store) {
    uint32_t image = 0, along = 0;
    p_.shape.columns.divmod(strip, image, along);
    if (image >= p_.shape.images) return;
    lines_.begin_column(image, along, cell);
    const uint32_t column = along * kStrip, made = min_of(kStrip, p_.shape.made[1] - column);
    const int64_t cell_bytes = int64_t(kCell * p_.shape.made[1]) * (p_.epilogue.d_stride * size_of(C.epilogue.d));
    uint32_t line = cell * kCell, pixel = pixel_number(image, line, column, p_.shape.made);
    char* to = store.place(pixel);
    CellSums sums[kSteps] = {};
    int32_t done = 1 - int32_t(kSteps);  // cells
    const int32_t all = int32_t(cells);
    int32_t stop = lines_.last_of_image(done, all);
    for (;;) {
      CLEAVE_NO_UNROLL
      while (done < stop) {
        add_step(sums);
        if (done >= 0) {
          store_cell(line, pixel, to, made, sums[0], store);
          line += kCell;
          pixel += kCell * p_.shape.made[1];
          to += cell_bytes;
        }
        ++done;
      }
      if (stop == all) return;
      lines_.clear();
      stop = all;
    }
  }

  /// Adds a step's lines to all cells, of which the first was done before and another begins.
  CLEAVE_DEVICE void add_step(CellSums (&sums)[kSteps]) {
    CLEAVE_UNROLL
    for (uint32_t k = 0; k < kSteps; ++k) {
      CLEAVE_UNROLL
      for (uint32_t n = 0; n < kCell * kStrip * kVector; ++n)
        at(sums[k], n) = k + 1 < kSteps ? at(sums[min_of(k + 1, kSteps - 1)], n) : 0.0f;
    }
    CLEAVE_UNROLL
    for (uint32_t q = 0; q < kLines; ++q) {
      lines_.begin_line(q);
      add_line(q, sums);
    }
  }

  CLEAVE_DEVICE static float& at(CellSums& cell, uint32_t n) {
    return cell[n / kVector / kStrip][n / kVector % kStrip][n % kVector];
  }
  CLEAVE_DEVICE static float at(const CellSums& cell, uint32_t n) {
    return cell[n / kVector / kStrip][n / kVector % kStrip][n % kVector];
  }

  /// Adds line `q` of a step to all cells.
  CLEAVE_DEVICE void add_line(uint32_t q, CellSums (&sums)[kSteps]) {
    float pixels[kPixels][kVector];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) {
      lines_.take(i, pixels[i]);
      if constexpr (kHolds) {
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < kStrip; ++j) {
          const int32_t s = tap_between(kKind, kAcross, j, int32_t(i) + kSpan.first);
          if (s != kApart) add_pixel(q, j, uint32_t(s), pixels[i], sums);
        }
      }
    }
    if constexpr (!kHolds) add_from_shared(q, pixels, sums);
  }

  /// A gathered pixel that pixel `j` of strips meets at tap `s` along the line.
  CLEAVE_DEVICE void add_pixel(uint32_t q, uint32_t j, uint32_t s, const float (&pixel)[kVector],
                               CellSums (&sums)[kSteps]) const {
    CLEAVE_UNROLL
    for (uint32_t k = 0; k < kSteps; ++k) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kCell; ++i) {
        const int32_t r = tap_down(k, q, i);
        if (r == kApart) continue;
        CLEAVE_UNROLL
        for (uint32_t other = 0; other < kGroup; ++other)
          multiply(pixel, held_[uint32_t(r) * kAcross.taps + s][other], other, sums[k][i][j]);
      }
    }
  }

  /// The tap at which line `i` of the `k`th cell, from the one that ends first, meets line `q` of a step.
  CLEAVE_DEVICE static constexpr int32_t tap_down(uint32_t k, uint32_t q, uint32_t i) {
    return tap_between(kKind, kDown, i, int32_t((kSteps - 1 - k) * kLines + q) + kReach.first);
  }

  CLEAVE_DEVICE void add_from_shared(uint32_t q, const float (&pixels)[kPixels][kVector],
                                     CellSums (&sums)[kSteps]) const {
    CLEAVE_UNROLL
    for (uint32_t k = 0; k < kSteps; ++k) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kCell; ++i) {
        const int32_t r = tap_down(k, q, i);
        if (r == kApart) continue;
        CLEAVE_UNROLL
        for (uint32_t s = 0; s < kAcross.taps; ++s) {
          CLEAVE_UNROLL
          for (uint32_t other = 0; other < kGroup; ++other) {
            float filter[kVector];
            filters_.read(uint32_t(r) * kAcross.taps + s, other, lane_, filter);
            CLEAVE_UNROLL
            for (uint32_t j = 0; j < kStrip; ++j) {
              const int32_t way = gathered_at(kKind, kAcross, j, s);
              if (way != kApart) multiply(pixels[way - kSpan.first], filter, other, sums[k][i][j]);
            }
          }
        }
      }
    }
  }

  /// By channel `other` of each group.
  CLEAVE_DEVICE static void multiply(const float (&pixel)[kVector], const float (&filter)[kVector], uint32_t other,
                                     float (&sum)[kVector]) {
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVector; ++v) sum[v] += pixel[v / kGroup * kGroup + other] * filter[v];
  }

  CLEAVE_DEVICE void store_cell(uint32_t line, uint32_t pixel, char* to, uint32_t made, const CellSums& sums,
                                const PixelStore<C>& store) const {
    const auto apart = uint32_t(p_.epilogue.d_stride * size_of(C.epilogue.d));
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kCell; ++i) {
      if (i > 0 && line + i >= p_.shape.made[0]) return;
      const uint32_t before = i * p_.shape.made[1];
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kStrip; ++j)
        if (j < made) store(pixel + before + j, sums[i][j], to + uint64_t(before + j) * apart);
    }
  }

  const Params<C>& p_;
  PixelFilters<C> filters_;
  Lines lines_;
  uint32_t lane_ = 0, channel_ = 0;
  float held_[kHolds ? kTaps : 1][kGroup][kVector];
};

}  // namespace cleave
