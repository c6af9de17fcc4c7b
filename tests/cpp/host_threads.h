// What the compiler of kernels brings, for device code that threads of the host run: before the headers of kernels.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#define CLEAVE_DEVICE inline
#define __shared__

namespace {

struct Index {
  uint32_t x;
};
struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
thread_local Index threadIdx;
Index blockIdx, blockDim, gridDim;

constexpr uint32_t kWarp = 32, kMostThreads = 256;
std::deque<std::barrier<>> warps;  // one each, and last the block's
std::array<uint32_t, kMostThreads> exchanged;

inline size_t __cvta_generic_to_shared(const void*) {
  return 0;  // nothing that is run here asks for it
}
inline void __syncthreads() {
  warps.back().arrive_and_wait();
}
inline void __syncwarp() {
  warps[threadIdx.x / kWarp].arrive_and_wait();
}

/// What `use` makes of the values of all lanes.
template <class Use>
inline uint32_t exchange(uint32_t value, const Use& use) {
  exchanged[threadIdx.x] = value;
  __syncwarp();
  const uint32_t result = use(&exchanged[threadIdx.x / kWarp * kWarp]);
  __syncwarp();
  return result;
}
inline uint32_t __shfl_up_sync(uint32_t, uint32_t value, uint32_t distance) {
  const uint32_t lane = threadIdx.x % kWarp;
  return exchange(value, [&](const uint32_t* of) { return of[lane - std::min(lane, distance)]; });
}
inline uint32_t __shfl_sync(uint32_t, uint32_t value, uint32_t lane) {
  return exchange(value, [&](const uint32_t* of) { return of[lane]; });
}
template <class T>
inline T __shfl_xor_sync(uint32_t, T value, uint32_t distance) {
  const uint32_t from = threadIdx.x % kWarp ^ distance;
  return std::bit_cast<T>(exchange(std::bit_cast<uint32_t>(value), [&](const uint32_t* of) { return of[from]; }));
}
inline uint32_t __reduce_max_sync(uint32_t, uint32_t value) {
  return exchange(value, [](const uint32_t* of) { return *std::max_element(of, of + kWarp); });
}
inline uint32_t __reduce_min_sync(uint32_t, uint32_t value) {
  return exchange(value, [](const uint32_t* of) { return *std::min_element(of, of + kWarp); });
}
inline uint32_t __ballot_sync(uint32_t, bool value) {
  return exchange(value, [](const uint32_t* of) {
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < kWarp; ++i) lanes |= of[i] << i;
    return lanes;
  });
}
inline uint32_t __ffs(uint32_t bits) {
  return bits == 0 ? 0 : uint32_t(std::countr_zero(bits)) + 1;
}
inline uint32_t __match_any_sync(uint32_t, uint32_t value) {
  return exchange(value, [&](const uint32_t* of) {
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < kWarp; ++i) lanes |= uint32_t(of[i] == value) << i;
    return lanes;
  });
}
inline int __popc(uint32_t bits) {
  return std::popcount(bits);
}
inline void atomicAdd(uint32_t* to, uint32_t value) {
  std::atomic_ref(*to) += value;
}

/// Runs `kernel` as a block of so many threads: the first of its grid, or another.
template <class Kernel>
void run_block(uint32_t threads, const Kernel& kernel, uint32_t block = 0, uint32_t blocks = 1) {
  blockIdx = {block};
  gridDim = {blocks};
  blockDim = {threads};
  warps.clear();
  for (uint32_t i = 0; i < threads / kWarp; ++i) warps.emplace_back(kWarp);
  warps.emplace_back(threads);
  std::vector<std::jthread> running;
  for (uint32_t i = 0; i < threads; ++i) {
    running.emplace_back([&kernel, i] {
      threadIdx = {i};
      kernel();
    });
  }
}

}  // namespace
