// Scores of experts, and their order: what the GPU and the CPU backend share.
#pragma once

#include "cleave/core/routing.h"

#if !defined(__CUDACC_RTC__)
#include <bit>
#include <cmath>
#endif

namespace cleave {

inline constexpr uint32_t kNanKey = 0xffffffffu;

/// Integers in the order of floats, none of which is 0: larger ones are better, and a NaN is the
/// best. The zeros are equal.
CLEAVE_HD uint32_t score_key(float value) {
  if (!(value == value)) return kNanKey;
  value += 0.0f;
#if defined(__CUDA_ARCH__)
  const uint32_t bits = __float_as_uint(value);
#else
  const uint32_t bits = std::bit_cast<uint32_t>(value);
#endif
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/// The float that has this key.
CLEAVE_HD float score_of_key(uint32_t key) {
  const uint32_t bits = key >> 31 ? key & 0x7fffffffu : ~key;
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

/// A part of a softmax: over the sum of all parts, it is the score.
CLEAVE_HD float softmax_part(float logit, float largest) {
#if !defined(__CUDACC_RTC__)
  using std::exp;
#endif
  return exp(logit - largest);
}

/// `largest`, `sum`: over a token's logits, and over their parts; for softmax only.
CLEAVE_HD float expert_score(ScoringFunc scoring_func, float logit, float largest, float sum) {
#if !defined(__CUDACC_RTC__)
  using std::exp;
#endif
  return scoring_func == ScoringFunc::softmax ? softmax_part(logit, largest) / sum : 1.0f / (1.0f + exp(-logit));
}

/// What keeps scores that are all 0 from being divided by 0.
inline constexpr float kLeastScoreSum = 1e-20f;

}  // namespace cleave
