// Two CTAs of a cluster, each with half of the columns that share scales of D's: by rows, what the one's reach goes to
// the other before either converts them. The quads of both that have the same rows are in the same place.
//
// Barriers   two for each warpgroup, in turn: 1 arrival, and the bytes of all quads. A partner may be one tile ahead,
//            whose reaches it sends once it has those of this one; not two.
#pragma once

#include "cleave/config/smem_plan.h"
#include "cleave/core/quantizer.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/store_async.h"

namespace cleave {

template <GemmConfig C>
class PairedReach {
  static constexpr SmemPlan kPlan = smem_plan(C);
  static constexpr uint32_t kBytes = paired_reach_bytes(C), kOfQuad = kBytes / 32;

 public:
  CLEAVE_DEVICE PairedReach(uint32_t smem, const uint8_t* shared, uint32_t warpgroup, uint32_t partner)
      : smem_(smem), shared_(shared), warpgroup_(warpgroup), partner_(partner) {}

  /// By one thread, before the CTAs of the cluster meet for the first time.
  CLEAVE_DEVICE static void init(uint32_t smem) {
    for (uint32_t i = 0; i < C.warps.consumers * 2; ++i) ptx::mbarrier_init(smem + kPlan.paired_barriers + i * 8, 1);
  }

  /// Raises reaches, the same in a quad, to those of the partner's columns. By all of the warpgroup.
  template <uint32_t Count>
  CLEAVE_DEVICE void exchange(Reach (&reaches)[Count][2]) {
    static_assert(Count * 2 * sizeof(int32_t) == kOfQuad);
    const uint32_t place = warpgroup_ * 2 + turn_ % 2, quad = threadIdx.x % 128 / 4;
    const uint32_t barrier = smem_ + kPlan.paired_barriers + place * 8;
    const uint32_t at = kPlan.paired_reach + place * kBytes + quad * kOfQuad;
    if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive_expect(barrier, kBytes);
    if (threadIdx.x % 4 == 0) {
      if constexpr (Count == 2) {
        const float4 own = make_float4(__int_as_float(reaches[0][0].above), __int_as_float(reaches[0][1].above),
                                       __int_as_float(reaches[1][0].above), __int_as_float(reaches[1][1].above));
        ptx::store_async(smem_ + at, barrier, partner_, own);
      } else {
        ptx::store_async(smem_ + at, barrier, partner_,
                         make_uint2(uint32_t(reaches[0][0].above), uint32_t(reaches[0][1].above)));
      }
    }
    ptx::mbarrier_wait_cluster(barrier, turn_ / 2 % 2);
    const auto received = reinterpret_cast<const volatile int32_t*>(shared_ + at);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Count * 2; ++i) reaches[i / 2][i % 2].add({received[i], 0});
    ++turn_;
  }

 private:
  uint32_t smem_;
  const uint8_t* shared_;
  uint32_t warpgroup_, partner_, turn_ = 0;
};

}  // namespace cleave
