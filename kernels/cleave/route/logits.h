// A router's logits: few tokens times float32 or 16-bit weights, by multiply-adds in float32. A tensor core's tile
// would be nearly empty, and would need several parts of such weights; here each is read once for some tokens as it is.
//
// Roles      a CTA has some tokens, some experts and all of K; each of its warps has one of the eight parts of K
// Timeline   a lane loads several pieces' elements together, weights first: static ones before the launch ahead is
//            done. Then sums over lanes, and over parts in order
//
// Nothing but an ordinary load's latency is long here, so that instructions count: no load hangs on a branch.
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
  uint32_t words[kWords];

  /// The line's elements from `first` on lie at `from`; it ends at `end`.
  CLEAVE_DEVICE void load(const char* from, uint32_t first, uint32_t end) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kWords; ++i) words[i] = 0;
    if constexpr (Vectors) {
      if (first < end) load_all(from);
      return;
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kLaneElements; ++i) {
      if (first + i >= end) continue;
      if constexpr (size_of(T) == 4) {
        words[i] = reinterpret_cast<const uint32_t*>(from)[i];
      } else {
        words[i / 2] |= uint32_t(reinterpret_cast<const uint16_t*>(from)[i]) << (i % 2 * 16);
      }
    }
  }

  CLEAVE_DEVICE void load_all(const char* from) {
    if constexpr (kWords == 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(from);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      words[0] = v.x, words[1] = v.y;
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
  constexpr uint32_t kAhead = pieces_ahead(C), kLogits = C.tokens * C.experts;
  static_assert(kLogits <= 32, "a lane has a logit's sum");
  extern __shared__ float of_parts[];  // of each logit
  const uint32_t part = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t begin = part * p.part_features, end = min_of(begin + p.part_features, p.features);
  uint32_t token0, expert0;
  p.expert_ctas.divmod(blockIdx.x, token0, expert0);
  token0 *= C.tokens, expert0 *= C.experts;
  ptx::launch_dependents();

  // Lines beyond the last are read as the last, whose logits are not stored again.
  uint32_t k = begin + lane * kLaneElements;
  const char *of_expert[C.experts], *of_token[C.tokens];
  CLEAVE_UNROLL
  for (uint32_t e = 0; e < C.experts; ++e) {
    const int64_t line = min_of(expert0 + e, p.experts - 1) * p.weight_stride;
    of_expert[e] = static_cast<const char*>(p.weight) + (line + k) * size_of(C.weight);
  }
  CLEAVE_UNROLL
  for (uint32_t t = 0; t < C.tokens; ++t) {
    const int64_t line = min_of(token0 + t, p.tokens - 1) * p.x_stride;
    of_token[t] = static_cast<const char*>(p.x) + (line + k) * size_of(C.x);
  }
  LaneElements<C.weight, C.vectors> weights[kAhead][C.experts];
  LaneElements<C.x, C.vectors> of_tokens[kAhead][C.tokens];
  const auto load_weights = [&] {
    CLEAVE_UNROLL
    for (uint32_t e = 0; e < C.experts; ++e) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i)
        weights[i][e].load(of_expert[e] + i * kPieceElements * size_of(C.weight), k + i * kPieceElements, end);
      of_expert[e] += kAhead * kPieceElements * size_of(C.weight);
    }
  };
  const auto load_tokens = [&] {
    CLEAVE_UNROLL
    for (uint32_t t = 0; t < C.tokens; ++t) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i)
        of_tokens[i][t].load(of_token[t] + i * kPieceElements * size_of(C.x), k + i * kPieceElements, end);
      of_token[t] += kAhead * kPieceElements * size_of(C.x);
    }
  };

  float sums[C.tokens][C.experts] = {};
  if constexpr (C.static_weight) load_weights();
  ptx::grid_dependency_wait();
  while (true) {
    if constexpr (!C.static_weight) load_weights();
    load_tokens();
    CLEAVE_UNROLL
    for (uint32_t ahead = 0; ahead < kAhead; ++ahead) {
      CLEAVE_UNROLL
      for (uint32_t element = 0; element < kLaneElements; ++element) {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kLogits; ++i) {
          const uint32_t t = i / C.experts, e = i % C.experts;
          sums[t][e] = multiply_add(of_tokens[ahead][t][element], weights[ahead][e][element], sums[t][e]);
        }
      }
    }
    k += kAhead * kPieceElements;
    if (k >= end) break;
    if constexpr (C.static_weight) load_weights();
  }

  float own = 0.0f;  // lane i's is logit i's
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kLogits; ++i) {
    const float sum = sum_over_warp(sums[i / C.experts][i % C.experts]);
    if (lane == i) own = sum;
  }
  if (lane < kLogits) of_parts[lane * kLogitsWarps + part] = own;
  __syncthreads();
  const uint32_t token = token0 + threadIdx.x / C.experts;
  const uint32_t expert = expert0 + threadIdx.x % C.experts;
  if (threadIdx.x >= kLogits || token >= p.tokens || expert >= p.experts) return;
  const float* const parts = of_parts + threadIdx.x * kLogitsWarps;
  float logit = parts[0];
  CLEAVE_UNROLL
  for (uint32_t i = 1; i < kLogitsWarps; ++i) logit += parts[i];
  p.logits[int64_t(token) * p.experts + expert] = logit;
}

}  // namespace cleave
