// Convolutions of narrow groups, depthwise ones above all, and their data gradients, by multiply-adds (sm_80 and
// later): a tensor core's tile would be nearly empty.
//
// Roles      a thread makes `tile.m` neighbours of a line, `direct.vector` channels of each; neighbouring threads
//            have neighbouring channels, then strips along the line, then lines
// Operands   pixels of all lines that a CTA's lines meet in shared memory (`direct.pixels` of them,
//            config/direct_pixels.h); each vector of a line once into registers, where taps and neighbours share it.
//            Filters as float32 in shared memory, by tap
// Sums       float32, in the order of the taps
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_params.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/direct/pixel_filters.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <GemmConfig C>
class DirectConv {
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kStrip = C.tile.m, kGroup = C.direct.group;
  static constexpr uint32_t kLanes = C.tile.n / kVector, kStrips = C.direct.strips, kLines = direct_lines(C);
  static constexpr uint32_t kBytes = kVector * size_of(kType);
  static constexpr DirectAxis kAxis = C.direct.width, kDown = C.direct.height;
  static constexpr GatheredSpan kSpan = gathered_span(C.conv.kind, kAxis, kStrip);
  static_assert(C.tile.n % kVector == 0 && kVector % kGroup == 0 && kLines > 0);
  static_assert(C.direct.pixels == staged_lines(C) * staged_columns(C) && C.tile.n * size_of(kType) % 16 == 0);

 public:
  CLEAVE_DEVICE DirectConv(const Params<C>& p, float* filters)
      : p_(p), filters_(p, filters), staged_(ptx::shared_address(filters) + round_up(pixels_filter_bytes(C), 16u)) {}

  CLEAVE_DEVICE void run() {
    const DirectTile tile = locate(p_.shape, blockIdx.x);
    const uint32_t channel0 = tile.channel * C.tile.n;
    const uint32_t lane = threadIdx.x % kLanes, place = threadIdx.x / kLanes;
    lane_ = lane * kVector;
    channel_ = channel0 + lane_;
    image_ = tile.image;
    column_ = (tile.column * kStrips + place % kStrips) * kStrip;
    const bool exists = place / kStrips < kLines && channel_ < p_.shape.channels && column_ < p_.shape.made[1];
    cta_x0_ = first_gathered(C.conv.kind, kAxis, tile.column * kStrips * kStrip, p_.shape.pad[1]) + kSpan.first;
    const PixelStore<C> store_pixel(p_, min_of(channel_, p_.shape.channels - kVector));
    for (uint32_t step = 0; step < p_.shape.steps; ++step) {
      const uint32_t line0 = (tile.row * p_.shape.steps + step) * kLines, line = line0 + place / kStrips;
      if (line0 >= p_.shape.made[0]) return;
      if (step > 0) __syncthreads();  // all are done with the pixels before
      stage(line0, channel0);
      if (step == 0) filters_.load(channel0);
      ptx::copy_async_wait<0>();
      __syncthreads();
      const int32_t first_line = staged_first(C.conv.kind, kDown, line0, p_.shape.pad[0]);
      if (exists && line < p_.shape.made[0]) make_strip(line, first_line, store_pixel);
    }
  }

 private:
  using Pixels = RawVector<kBytes>[kSpan.size()];  // of a line

  /// The gathered pixels that the lines from `line` on meet, into shared memory; zeros outside of the images. By all.
  CLEAVE_DEVICE void stage(uint32_t line, uint32_t channel0) const {
    constexpr uint32_t kPiece = 16 / size_of(kType), kPieces = C.tile.n / kPiece;
    constexpr uint32_t kCount = staged_lines(C) * staged_columns(C) * kPieces;
    const int32_t y0 = staged_first(C.conv.kind, kDown, line, p_.shape.pad[0]);
    const auto* const pixels = static_cast<const char*>(p_.a.data);
    const int64_t first = pixel_number(int64_t(image_), y0, cta_x0_, p_.shape.gathered);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < kCount; i += kDirectThreads) {
      const uint32_t piece = i % kPieces, column = i / kPieces % staged_columns(C);
      const uint32_t down = i / kPieces / staged_columns(C), channel = channel0 + piece * kPiece;
      const bool exists = is_inside(y0 + int32_t(down), p_.shape.gathered[0]) &&
                          is_inside(cta_x0_ + int32_t(column), p_.shape.gathered[1]) && channel < p_.shape.channels;
      const int64_t from = (first + down * p_.shape.gathered[1] + column) * p_.a.stride + channel;
      ptx::copy_async<16>(staged_ + i * 16, pixels + (exists ? from * size_of(kType) : 0), exists ? 16 : 0);
    }
    ptx::copy_async_commit();
  }

  /// Those of a line that the thread's strip meets.
  CLEAVE_DEVICE void load(int32_t y, int32_t x0, int32_t first_line, Pixels& raw) const {
    const uint32_t column = uint32_t(x0 - cta_x0_), row = uint32_t(y - first_line) * staged_columns(C) + column;
    const uint32_t from = staged_ + (row * C.tile.n + lane_) * size_of(kType);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kSpan.size(); ++i)
      ptx::load_shared<kBytes>(from + i * C.tile.n * size_of(kType), raw[i].words);
  }

  CLEAVE_DEVICE void make_strip(uint32_t line, int32_t first_line, const PixelStore<C>& store_pixel) const {
    float sums[kStrip][kVector] = {};
    const int32_t x0 = first_gathered(C.conv.kind, kAxis, column_, p_.shape.pad[1]) + kSpan.first;
    CLEAVE_NO_UNROLL
    for (uint32_t r = 0; r < kDown.taps; ++r) {
      const int32_t y = gathered_at(C.conv.kind, kDown.map(p_.shape.pad[0]), line, r);
      if (!is_inside(y, p_.shape.gathered[0])) continue;
      Pixels raw;
      load(y, x0, first_line, raw);
      multiply(r, raw, sums);
    }
    store(line, store_pixel, sums);
  }

  CLEAVE_DEVICE void multiply(uint32_t r, const Pixels& raw, float (&sums)[kStrip][kVector]) const {
    CLEAVE_UNROLL
    for (uint32_t s = 0; s < kAxis.taps; ++s) {
      CLEAVE_UNROLL
      for (uint32_t other = 0; other < kGroup; ++other) {
        float filter[kVector];
        filters_.read(r * kAxis.taps + s, other, lane_, filter);
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < kStrip; ++j) {
          const int32_t at = gathered_at(C.conv.kind, kAxis, j, s);
          if (at == kApart) continue;
          CLEAVE_UNROLL
          for (uint32_t v = 0; v < kVector; ++v)
            sums[j][v] += element_of<kType>(raw[at - kSpan.first], v / kGroup * kGroup + other) * filter[v];
        }
      }
    }
  }

  CLEAVE_DEVICE void store(uint32_t line, const PixelStore<C>& store_pixel,
                           const float (&sums)[kStrip][kVector]) const {
    const uint32_t row0 = pixel_number(image_, line, column_, p_.shape.made);
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kStrip; ++j) {
      if (column_ + j >= p_.shape.made[1]) return;
      store_pixel(row0 + j, sums[j]);
    }
  }

  const Params<C>& p_;
  PixelFilters<C> filters_;
  const uint32_t staged_;
  uint32_t lane_ = 0, channel_ = 0, image_ = 0, column_ = 0;
  int32_t cta_x0_ = 0;  // the first gathered column of the CTA's
};

}  // namespace cleave
