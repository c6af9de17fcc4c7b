// Convolutions of narrow groups, depthwise ones above all, and their data gradients, by multiply-adds (sm_80 and
// later): a tensor core's tile would be nearly empty.
//
// Roles      a thread makes `tile.m` neighbours of a line, `direct.vector` channels of each; neighbouring threads
//            have neighbouring channels, then strips along the line, then lines
// Operands   pixels straight from global memory, each vector of a line once into registers, where taps and
//            neighbours share it; lines that follow each other, from L1. Filters as float32 in shared memory, by tap
// Sums       float32, in the order of the taps
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <GemmConfig C>
class DirectConv {
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kStrip = C.tile.m, kGroup = C.direct.group;
  static constexpr uint32_t kLanes = C.tile.n / kVector, kStrips = C.direct.strips, kLines = direct_lines(C);
  static constexpr uint32_t kRow = direct_filter_row(C);  // floats of a tap, in shared memory
  static constexpr uint32_t kBytes = kVector * size_of(kType);
  static constexpr DirectAxis kAxis = C.direct.width, kDown = C.direct.height;
  static constexpr GatheredSpan kSpan = gathered_span(C.conv.kind, kAxis, kStrip);
  static_assert(C.tile.n % kVector == 0 && kVector % kGroup == 0 && kLines > 0);

 public:
  CLEAVE_DEVICE DirectConv(const Params<C>& p, float* filters) : p_(p), filters_(filters) {}

  CLEAVE_DEVICE void run() {
    const DirectTile tile = locate(p_.shape, blockIdx.x);
    const uint32_t channel0 = tile.channel * C.tile.n;
    load_filters(channel0);
    __syncthreads();
    const uint32_t lane = threadIdx.x % kLanes, place = threadIdx.x / kLanes;
    lane_ = lane * kVector;
    channel_ = channel0 + lane_;
    image_ = tile.image;
    column_ = (tile.column * kStrips + place % kStrips) * kStrip;
    if (place / kStrips >= kLines || channel_ >= p_.shape.channels || column_ >= p_.shape.made[1]) return;
    const PixelStore<C> store_pixel(p_, channel_);
    for (uint32_t step = 0; step < p_.shape.steps; ++step) {
      const uint32_t line = (tile.row * p_.shape.steps + step) * kLines + place / kStrips;
      if (line >= p_.shape.made[0]) return;
      make_strip(line, store_pixel);
    }
  }

 private:
  using Raw = RawVector<kBytes>;

  /// Those of the CTA's channels, by tap; of a group, for each channel that is multiplied. All threads'.
  CLEAVE_DEVICE void load_filters(uint32_t channel0) {
    constexpr uint32_t kTaps = kDown.taps * kAxis.taps, kOfChannel = kTaps * kGroup;
    for (uint32_t i = threadIdx.x; i < C.tile.n * kOfChannel; i += cta_threads(C)) {
      const uint32_t channel = i / kOfChannel, rest = i % kOfChannel, tap = rest / kGroup, other = rest % kGroup;
      if (channel0 + channel >= p_.shape.channels) continue;
      const uint32_t made = channel0 + channel;
      // A group's filters follow each other; channels of a tap are those of one group.
      const bool back = C.conv.kind == Conv::dgrad;
      const uint32_t filter = back ? made / kGroup * kGroup + other : made;
      const int64_t at = filter * p_.b.stride + tap * kGroup + (back ? made % kGroup : other);
      filters_[(tap * kGroup + other) * kRow + channel] = load_element(kType, p_.b.data, at);
    }
  }

  CLEAVE_DEVICE void make_strip(uint32_t line, const PixelStore<C>& store_pixel) const {
    float sums[kStrip][kVector] = {};
    const int32_t x0 = first_gathered(C.conv.kind, kAxis, column_, p_.shape.pad[1]) + kSpan.first;
    const auto* const pixels = static_cast<const char*>(p_.a.data);
    const int64_t apart = p_.a.stride * size_of(kType);
    CLEAVE_NO_UNROLL
    for (uint32_t r = 0; r < kDown.taps; ++r) {
      const int32_t y = gathered_at(C.conv.kind, kDown.map(p_.shape.pad[0]), line, r);
      if (!is_inside(y, p_.shape.gathered[0])) continue;
      const int64_t first = pixel_number(int64_t(image_), y, x0, p_.shape.gathered);
      const char* const from = pixels + first * apart + channel_ * size_of(kType);
      Raw raw[kSpan.size()];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kSpan.size(); ++i)
        raw[i] = load_vector<kBytes>(from + i * apart, is_inside(x0 + int32_t(i), p_.shape.gathered[1]));
      multiply(r, raw, sums);
    }
    store(line, store_pixel, sums);
  }

  CLEAVE_DEVICE void multiply(uint32_t r, const Raw (&raw)[kSpan.size()], float (&sums)[kStrip][kVector]) const {
    CLEAVE_UNROLL
    for (uint32_t s = 0; s < kAxis.taps; ++s) {
      CLEAVE_UNROLL
      for (uint32_t other = 0; other < kGroup; ++other) {
        float filter[kVector];
        read_filters(((r * kAxis.taps + s) * kGroup + other) * kRow + lane_, filter);
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

  CLEAVE_DEVICE void read_filters(uint32_t at, float (&filter)[kVector]) const {
    constexpr uint32_t kAtOnce = kVector % 4 == 0 ? 4 : kVector;  // all of whose places are multiples of it
    struct alignas(kAtOnce * sizeof(float)) Floats {
      float v[kAtOnce];
    };
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVector; v += kAtOnce) {
      const Floats floats = *reinterpret_cast<const Floats*>(filters_ + at + v);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) filter[v + i] = floats.v[i];
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
  float* filters_;
  uint32_t lane_ = 0, channel_ = 0, image_ = 0, column_ = 0;
};

}  // namespace cleave
