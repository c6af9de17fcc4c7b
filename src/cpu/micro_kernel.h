// The inner loop of the CPU backend: a small tile of sums kept in registers while K streams by.
#pragma once

#include <cstdint>

namespace cleave::cpu {

// 6 x 16 sums, two B vectors and one A value fill the 16 registers of AVX2, and keep AVX-512's
// adders busy.
inline constexpr uint32_t kMicroRows = 6;
inline constexpr uint32_t kMicroColumns = 16;

/// Sums over p < k of a[p * kMicroRows + i] * b[p * kMicroColumns + j].
struct MicroKernel {
  using Function = void (*)(uint32_t k, const float* a, const float* b, float* sums, uint32_t stride);
  Function add;    ///< sums[i * stride + j] += ...
  Function store;  ///< sums[i * stride + j] = ...
};

/// The fastest that this processor can run.
const MicroKernel& micro_kernel();

}  // namespace cleave::cpu
