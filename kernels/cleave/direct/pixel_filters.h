// Filters of narrow groups on their way through shared memory: from where they lie filter by filter to where threads
// have channels.
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_params.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/ptx/load_global.h"

namespace cleave {

/// Those of a CTA's channels, as float32, by tap; of a group, for each channel that is multiplied.
template <GemmConfig C>
class PixelFilters {
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kGroup = C.direct.group;
  static constexpr uint32_t kTaps = C.direct.height.taps * C.direct.width.taps;
  static constexpr uint32_t kRow = direct_filter_row(C);  // floats of a tap

 public:
  CLEAVE_DEVICE PixelFilters(const Params<C>& p, float* shared) : p_(p), shared_(shared) {}

  /// By all threads, which have yet to meet.
  CLEAVE_DEVICE void load(uint32_t channel0) const {
    constexpr uint32_t kOfChannel = kTaps * kGroup, kCount = C.tile.n * kOfChannel;
    constexpr uint32_t kOwn = ceil_div(kCount, kDirectThreads), kAtOnce = ceil_div(kOwn, ceil_div(kOwn, 16u));
    CLEAVE_NO_UNROLL
    for (uint32_t begin = threadIdx.x; begin < kCount; begin += kAtOnce * kDirectThreads) {
      RawVector<size_of(kType)> raw[kAtOnce];  // on their way
      CLEAVE_UNROLL
      for (uint32_t n = 0; n < kAtOnce; ++n) {
        const uint32_t i = begin + n * kDirectThreads;
        const uint32_t channel = i / kOfChannel, rest = i % kOfChannel, tap = rest / kGroup, other = rest % kGroup;
        const uint32_t made = channel0 + channel;
        // A group's filters follow each other; channels of a tap are those of one group.
        const bool back = C.conv.kind == Conv::dgrad;
        const uint32_t filter = back ? made / kGroup * kGroup + other : made;
        const int64_t at = filter * p_.b.stride + tap * kGroup + (back ? made % kGroup : other);
        ptx::load_global_if<size_of(kType)>(raw[n].words, static_cast<const char*>(p_.b.data) + at * size_of(kType),
                                            i < kCount && made < p_.shape.channels);
      }
      CLEAVE_UNROLL
      for (uint32_t n = 0; n < kAtOnce; ++n) {
        const uint32_t i = begin + n * kDirectThreads, channel = i / kOfChannel, rest = i % kOfChannel;
        if (i < kCount) shared_[rest * kRow + channel] = element_of<kType>(raw[n], 0);
      }
    }
  }

  /// At `tap`, for channel `other` of groups: of the thread's channels, the first of which is `lane` of the CTA's.
  CLEAVE_DEVICE void read(uint32_t tap, uint32_t other, uint32_t lane, float (&filter)[kVector]) const {
    constexpr uint32_t kAtOnce = kVector % 4 == 0 ? 4 : kVector;  // all of whose places are multiples of it
    struct alignas(kAtOnce * sizeof(float)) Floats {
      float v[kAtOnce];
    };
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVector; v += kAtOnce) {
      const Floats floats = *reinterpret_cast<const Floats*>(shared_ + (tap * kGroup + other) * kRow + lane + v);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) filter[v + i] = floats.v[i];
    }
  }

 private:
  const Params<C>& p_;
  float* shared_;
};

}  // namespace cleave
