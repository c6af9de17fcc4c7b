// Weight gradients of narrow groups, from what threads of a CTA have added up to what D holds.
//
// Split      K: CTAs of the same channels have lines of their own of the images
// Sums       float32: those of a CTA's places, in their order, then of the slices (split_k/block_slices.h)
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_params.h"
#include "cleave/epilogue/store_sum.h"
#include "cleave/split_k/block_slices.h"

namespace cleave {

/// A thread has some neighbouring channels of the CTA's and, of the filter, either one line of taps (the slots are
/// those of the first line, then of the next) or all; so many threads, of other places, have the same.
template <GemmConfig C>
class WgradSums {
  static constexpr uint32_t kVector = C.direct.vector, kGroup = C.direct.group, kLanes = C.tile.n / kVector;
  static constexpr uint32_t kPlaces = direct_places(C), kSums = direct_sums(C), kMade = direct_made(C);
  static constexpr uint32_t kSlots = kMade / kSums;

 public:
  CLEAVE_DEVICE WgradSums(const Params<C>& p, float* shared) : p_(p), shared_(shared) {}

  /// By all threads. `sums`: by tap, channel of the group and channel.
  template <uint32_t Taps>
  CLEAVE_DEVICE void finish(const float (&sums)[Taps][kGroup][kVector], uint32_t block) {
    static_assert(Taps * kGroup * kVector == kSums);
    const uint32_t slot = threadIdx.x % kSlots, place = threadIdx.x / kSlots;
    if (place < kPlaces) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kSums; ++i)
        shared_[(place * kSums + i) * kSlots + slot] = sums[i / kVector / kGroup][i / kVector % kGroup][i % kVector];
    }
    __syncthreads();
    add_places();
    add_slices<C, kMade>(p_, shared_, [this, block](uint32_t i, float sum) { store(block, i, sum); });
  }

 private:
  // A thread has every kDirectThreads-th element of what the CTA makes, in shared memory.

  CLEAVE_DEVICE void add_places() {
    for (uint32_t i = threadIdx.x; i < kMade; i += kDirectThreads) {
      float sum = shared_[i];
      for (uint32_t place = 1; place < kPlaces; ++place) sum += shared_[place * kMade + i];
      shared_[i] = sum;
    }
  }

  CLEAVE_DEVICE void store(uint32_t block, uint32_t i, float sum) const {
    const uint32_t slot = i % kSlots, rest = i / kSlots, v = rest % kVector, other = rest / kVector % kGroup;
    const uint32_t tap = slot / kLanes * C.direct.width.taps + rest / kVector / kGroup;
    const uint32_t channel = block * C.tile.n + slot % kLanes * kVector + v, column = tap * kGroup + other;
    if (channel >= p_.shape.channels) return;
    store_sum<C>(p_.epilogue, channel, column, sum);
  }

  const Params<C>& p_;
  float* shared_;
};

}  // namespace cleave
