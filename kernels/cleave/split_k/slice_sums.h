// Sums of slices that CTAs hold in shared memory, in two levels (DirectReduction): teams, then the teams' sums, each by
// who arrives last and in the slices' order, so that the bits do not depend on who that is.
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/core/either.h"
#include "cleave/ptx/packed_16.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// `Made` floats that all threads of a CTA have.
template <GemmConfig C, uint32_t Made>
class SliceSums {
 public:
  CLEAVE_DEVICE SliceSums(const GemmParams& p, float* shared) : p_(p), shared_(shared) {}

  /// By all threads, when each has its part of the CTA's sums there. True in the CTA that then has those of all
  /// `slices` of `block`, for all of its threads to see.
  CLEAVE_DEVICE bool add(uint32_t block, uint32_t slice, uint32_t slices) {
    const DirectReduction of(slices);
    float* const parts = p_.partials + uint64_t(block) * of.slices * Made;
    uint32_t* const counters = p_.counters + block * of.counters();
    __syncthreads();  // vectors are of several threads' sums
    write_part(parts + uint64_t(slice) * Made);
    const uint32_t team = slice / of.team;
    if (!arrives_last(counters + 1 + team, of.members(team))) return false;
    float* const of_team = parts + uint64_t(team) * of.team * Made;
    add_parts(of_team, ptx::in_register<Made>(), of.members(team));
    write_part(of_team);
    if (!arrives_last(counters, of.teams)) return false;
    add_parts(parts, of.team * Made, of.teams);
    __syncthreads();
    return true;
  }

 private:
  // A thread has every kDirectThreads-th vector of them, some of those and of the parts at once.
  static constexpr uint32_t kVector = Made % 4 == 0 ? 4 : 1, kVectors = Made / kVector;
  static constexpr uint32_t kElements = min_of(4 / kVector, ceil_div(kVectors, kDirectThreads));
  static constexpr uint32_t kParts = C.direct.method == DirectMethod::lines ? 16 : 8;  // registers
  using Vector = Either<kVector == 4, float4, float>;

  CLEAVE_DEVICE Vector& own(uint32_t at) const { return reinterpret_cast<Vector*>(shared_)[at]; }

  CLEAVE_DEVICE void write_part(float* part) const {
    for (uint32_t i = threadIdx.x; i < kVectors; i += kDirectThreads)
      __stcg(reinterpret_cast<Vector*>(part) + i, own(i));
  }

  CLEAVE_DEVICE static void add(float& sum, float x) { sum += x; }
  CLEAVE_DEVICE static void add(float4& sum, const float4& x) {
    sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
  }

  /// `count` parts, `apart` floats from each other.
  CLEAVE_DEVICE void add_parts(const float* parts, uint32_t apart, uint32_t count) {
    CLEAVE_NO_UNROLL
    for (uint32_t first = threadIdx.x; first < kVectors; first += kElements * kDirectThreads) {
      Vector sums[kElements] = {};
      for (uint32_t part = 0; part < count; part += kParts) {
        Vector loaded[kParts][kElements];  // on their way together
        CLEAVE_UNROLL
        for (uint32_t k = 0; k < kParts; ++k) {
          CLEAVE_UNROLL
          for (uint32_t i = 0; i < kElements; ++i) {
            const uint32_t at = first + i * kDirectThreads;
            const bool exists = part + k < count && at < kVectors;
            const auto* const from = reinterpret_cast<const Vector*>(parts + uint64_t(part + k) * apart) + at;
            loaded[k][i] = exists ? __ldcg(from) : Vector{};
          }
        }
        CLEAVE_UNROLL
        for (uint32_t k = 0; k < kParts; ++k) {
          CLEAVE_UNROLL
          for (uint32_t i = 0; i < kElements; ++i) add(sums[i], loaded[k][i]);
        }
      }
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kElements; ++i)
        if (first + i * kDirectThreads < kVectors) own(first + i * kDirectThreads) = sums[i];
    }
  }

  /// True in all threads of the last of `count` CTAs, which sees what the others wrote; the counter is then zero again.
  CLEAVE_DEVICE bool arrives_last(uint32_t* counter, uint32_t count) const {
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
      last = ptx::add_acquire_release(counter, 1) == count - 1;
      if (last) *counter = 0;
    }
    return __syncthreads_or(last);
  }

  const GemmParams& p_;
  float* shared_;
};

}  // namespace cleave
