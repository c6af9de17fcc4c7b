#include "cpu/micro_kernel.h"

#include <cstring>

#include "cleave/core/math.h"
#include "cpu/instruction_sets.h"
#include "process/fork.h"

namespace cleave::cpu {
namespace {

template <uint32_t bytes>
struct Vector {
  using type [[gnu::vector_size(bytes)]] = float;
};

/// With vectors of `bytes`, the micro-tile is worked off in strips of at most two vectors of
/// columns, so that a strip's sums fit the registers also where they are narrow.
template <uint32_t bytes, bool adds>
[[gnu::always_inline]] inline void multiply(uint32_t k, const float* a, const float* b, float* sums, uint32_t stride) {
  using Lanes = typename Vector<bytes>::type;
  constexpr uint32_t lanes = bytes / sizeof(float);
  constexpr uint32_t vectors = min_of(kMicroColumns / lanes, 2u);
  for (uint32_t strip = 0; strip < kMicroColumns; strip += vectors * lanes) {
    Lanes tile[kMicroRows][vectors] = {};
    for (uint32_t p = 0; p < k; ++p) {
      Lanes row[vectors];
      for (uint32_t v = 0; v < vectors; ++v) {
        std::memcpy(&row[v], b + p * kMicroColumns + strip + v * lanes, bytes);
      }
#pragma GCC unroll 8  // or the sums stay in memory
      for (uint32_t i = 0; i < kMicroRows; ++i) {
        for (uint32_t v = 0; v < vectors; ++v) tile[i][v] += a[p * kMicroRows + i] * row[v];
      }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kMicroRows; ++i) {
      for (uint32_t v = 0; v < vectors; ++v) {
        float* const out = sums + i * stride + strip + v * lanes;
        Lanes total = {};
        if (adds) std::memcpy(&total, out, bytes);
        total += tile[i][v];
        std::memcpy(out, &total, bytes);
      }
    }
  }
}

// SSE, NEON.
template <bool adds>
void multiply_baseline(uint32_t k, const float* a, const float* b, float* sums, uint32_t stride) {
  multiply<16, adds>(k, a, b, sums, stride);
}

#if defined(__x86_64__)
template <bool adds>
[[gnu::target("avx2,fma")]] void multiply_avx2(uint32_t k, const float* a, const float* b, float* sums,
                                               uint32_t stride) {
  multiply<32, adds>(k, a, b, sums, stride);
}

template <bool adds>
[[gnu::target("avx512f,avx2,fma")]] void multiply_avx512(uint32_t k, const float* a, const float* b, float* sums,
                                                         uint32_t stride) {
  multiply<64, adds>(k, a, b, sums, stride);
}
#endif

MicroKernel choose() {
#if defined(__x86_64__)
  const InstructionSets has = instruction_sets();
  if (has.avx512f) return {multiply_avx512<true>, multiply_avx512<false>};
  if (has.avx2_fma) return {multiply_avx2<true>, multiply_avx2<false>};
#endif
  return {multiply_baseline<true>, multiply_baseline<false>};
}

}  // namespace

const MicroKernel& micro_kernel() {
  static constinit Lazy<const MicroKernel> kernel;
  return kernel.get(choose);
}

}  // namespace cleave::cpu
