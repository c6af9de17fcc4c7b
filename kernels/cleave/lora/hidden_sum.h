// From warps' sums to the hidden rows of a tile, rounded, in every CTA of the cluster: each adds a part of them up, in
// the order of CTAs, and sends that to all. The receivers' mbarriers count the bytes: what is on its way from global
// memory meanwhile, no fence waits for.
#pragma once

#include "cleave/core/element.h"
#include "cleave/lora/lora_config.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/cluster.h"
#include "cleave/ptx/store_async.h"

namespace cleave {

template <LoraConfig C>
class HiddenSum {
  static constexpr uint32_t kCount = lora_blocks(C) * 32, kThreads = C.warps * 32;
  static constexpr uint32_t kOwn = kCount / C.cluster;  // of a CTA: every cluster-th

 public:
  CLEAVE_DEVICE HiddenSum(uint8_t* shared, uint32_t cta)
      : sums_(reinterpret_cast<float4*>(shared)),
        received_(sums_ + kCount * C.warps),
        hidden_(reinterpret_cast<uint2*>(received_ + (C.cluster > 1 ? kCount : 0))),
        cta_(cta) {}

  /// Each warp that has a part of the features writes its own kCount of them.
  CLEAVE_DEVICE float4* sums() const { return sums_; }
  CLEAVE_DEVICE const uint2* hidden() const { return hidden_; }

  /// Before the loads that the CTA begins with.
  CLEAVE_DEVICE void start() const {
    if constexpr (C.cluster == 1) return;
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(barrier(0), 1);
      ptx::mbarrier_init(barrier(1), 1);
      ptx::mbarrier_arrive_expect(barrier(0), kCount * sizeof(float4));
      ptx::mbarrier_arrive_expect(barrier(1), kCount * sizeof(uint2));
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::cluster_arrive();
  }

  /// By all threads, once all sums are written.
  CLEAVE_DEVICE void run() const {
    __syncthreads();
    if constexpr (C.cluster > 1) ptx::cluster_wait();
    for (uint32_t i = threadIdx.x; i < kCount; i += kThreads) {
      const float4 sum = total<C.warps>(sums_ + i, kCount);
      if constexpr (C.cluster == 1) {
        hidden_[i] = rounded(sum);
      } else {
        const float4* const to = received_ + cta_ * kOwn + i / C.cluster;
        ptx::store_async(ptx::shared_address(to), barrier(0), i % C.cluster, sum);
      }
    }
    if constexpr (C.cluster == 1) {
      __syncthreads();
    } else {
      ptx::mbarrier_wait_cluster(barrier(0), 0);
      for (uint32_t i = threadIdx.x; i < kOwn; i += kThreads) {
        const uint2 made = rounded(total<C.cluster>(received_ + i, kOwn));
        CLEAVE_UNROLL
        for (uint32_t to = 0; to < C.cluster; ++to)
          ptx::store_async(ptx::shared_address(hidden_ + i * C.cluster + cta_), barrier(1), to, made);
      }
      ptx::mbarrier_wait_cluster(barrier(1), 0);
      __syncwarp();
    }
  }

 private:
  CLEAVE_DEVICE uint32_t barrier(uint32_t i) const { return ptx::shared_address(hidden_ + kCount + i); }

  template <uint32_t Count>
  CLEAVE_DEVICE static float4 total(const float4* first, uint32_t step) {
    float4 v = first[0];
    CLEAVE_UNROLL
    for (uint32_t i = 1; i < Count; ++i) {
      const float4 other = first[i * step];
      v.x += other.x;
      v.y += other.y;
      v.z += other.z;
      v.w += other.w;
    }
    return v;
  }

  CLEAVE_DEVICE static uint2 rounded(const float4& v) {
    return make_uint2(pack_pair(C.type, v.x, v.y), pack_pair(C.type, v.z, v.w));
  }

  float4 *const sums_, *const received_;
  uint2* const hidden_;
  const uint32_t cta_;
};

}  // namespace cleave
