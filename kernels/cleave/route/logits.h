// A router's logits: few tokens times float32 or 16-bit weights, by multiply-adds in float32. A tensor core's tile
// would be nearly empty, and would need several parts of such weights; here each is read once for some tokens as it is.
//
// Roles      a CTA has some tokens and some experts, and all of K, whose pieces its warps take in turn
// Timeline   a lane loads several pieces' elements together, weights first: static ones before the launch ahead is
//            done. Then sums over lanes, and over warps in order
#pragma once

#include "cleave/core/element.h"
#include "cleave/core/multiply_add.h"
#include "cleave/core/sum_over_warp.h"
#include "cleave/ptx/sync.h"
#include "cleave/route/logits_config.h"
#include "cleave/route/logits_params.h"

namespace cleave {

/// A lane's elements of a line's piece, as they lie in memory. Zeros beyond the line.
template <DType T, bool Vectors>
struct LaneElements {
  static constexpr uint32_t kWords = kLaneElements * size_of(T) / 4;
  uint32_t words[kWords] = {};

  CLEAVE_DEVICE void load(const char* line, uint32_t first, uint32_t count) {
    const char* const from = line + uint64_t(first) * size_of(T);
    if (Vectors && first + kLaneElements <= count) {
      if constexpr (kWords == 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(from);
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
      } else {
        const uint2 v = *reinterpret_cast<const uint2*>(from);
        words[0] = v.x, words[1] = v.y;
      }
      return;
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kWords; ++i) words[i] = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kLaneElements; ++i) {
      if (first + i >= count) continue;
      if constexpr (size_of(T) == 4) {
        words[i] = reinterpret_cast<const uint32_t*>(from)[i];
      } else {
        words[i / 2] |= uint32_t(reinterpret_cast<const uint16_t*>(from)[i]) << (i % 2 * 16);
      }
    }
  }

  CLEAVE_DEVICE float operator[](uint32_t i) const {
    if constexpr (size_of(T) == 4) return bits_float(words[i]);
    const uint16_t bits = uint16_t(words[i / 2] >> (i % 2 * 16));
    if constexpr (T == DType::f16) return f16_to_float(bits);
    return bf16_to_float(bits);
  }
};

template <LogitsConfig C>
CLEAVE_DEVICE void logits(const LogitsParams& p) {
  constexpr uint32_t kAhead = pieces_ahead(C), kStride = kLogitsWarps * kPieceElements;
  extern __shared__ float of_warps[];  // of each logit
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t token0 = blockIdx.x / p.expert_ctas * C.tokens, expert0 = blockIdx.x % p.expert_ctas * C.experts;
  ptx::launch_dependents();

  LaneElements<C.weight, C.vectors> weights[kAhead][C.experts];
  LaneElements<C.x, C.vectors> of_tokens[kAhead][C.tokens];
  const auto piece = [&](uint32_t k, uint32_t i) { return k + i * kStride; };
  // Lines beyond the last are read as the last, whose logits are not stored again.
  const auto load_weights = [&](uint32_t k) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) {
      CLEAVE_UNROLL
      for (uint32_t e = 0; e < C.experts; ++e) {
        const int64_t line = min_of(expert0 + e, p.experts - 1) * p.weight_stride * size_of(C.weight);
        weights[i][e].load(static_cast<const char*>(p.weight) + line, piece(k, i), p.features);
      }
    }
  };
  const auto load_tokens = [&](uint32_t k) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) {
      CLEAVE_UNROLL
      for (uint32_t t = 0; t < C.tokens; ++t) {
        const int64_t line = min_of(token0 + t, p.tokens - 1) * p.x_stride * size_of(C.x);
        of_tokens[i][t].load(static_cast<const char*>(p.x) + line, piece(k, i), p.features);
      }
    }
  };

  float sums[C.tokens][C.experts] = {};
  const uint32_t first = warp * kPieceElements + lane * kLaneElements;
  if constexpr (C.static_weight) load_weights(first);
  ptx::grid_dependency_wait();
  for (uint32_t k = first; k < p.features; k += kAhead * kStride) {
    if (!C.static_weight || k != first) load_weights(k);
    load_tokens(k);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead * kLaneElements; ++i) {
      const uint32_t ahead = i / kLaneElements, element = i % kLaneElements;
      CLEAVE_UNROLL
      for (uint32_t t = 0; t < C.tokens; ++t) {
        CLEAVE_UNROLL
        for (uint32_t e = 0; e < C.experts; ++e)
          sums[t][e] = multiply_add(of_tokens[ahead][t][element], weights[ahead][e][element], sums[t][e]);
      }
    }
  }

  CLEAVE_UNROLL
  for (uint32_t i = 0; i < C.tokens * C.experts; ++i) {
    const float sum = sum_over_warp(sums[i / C.experts][i % C.experts]);
    if (lane == 0) of_warps[i * kLogitsWarps + warp] = sum;
  }
  __syncthreads();
  const uint32_t token = token0 + threadIdx.x / C.experts, expert = expert0 + threadIdx.x % C.experts;
  if (threadIdx.x >= C.tokens * C.experts || token >= p.tokens || expert >= p.experts) return;
  const float* const parts = of_warps + threadIdx.x * kLogitsWarps;
  float logit = parts[0];
  CLEAVE_UNROLL
  for (uint32_t i = 1; i < kLogitsWarps; ++i) logit += parts[i];
  p.logits[int64_t(token) * p.experts + expert] = logit;
}

}  // namespace cleave
