// Chooses each token's experts, and weighs them.
//
// Roles      a warp has a token, and lane l its experts l, l + 32 and so on, as integers in the order of their scores:
//            `keys`. 0 is the key of an expert that is taken, or may not be
// Timeline   all logits are read at once; groups are chosen, and then experts, the best one first: the warp finds the
//            largest key, and the least number that has it. Lane j weighs the j-th choice
#pragma once

#include "cleave/core/element.h"
#include "cleave/core/math.h"
#include "cleave/core/sum_over_warp.h"
#include "cleave/ptx/sync.h"
#include "cleave/route/route_config.h"
#include "cleave/route/route_params.h"
#include "cleave/route/score.h"

namespace cleave {

inline constexpr uint32_t kAllLanes = 0xffffffffu;

/// Clears the keys of all groups but the best.
template <RouteConfig C>
CLEAVE_DEVICE void keep_best_groups(const RouteParams& p, uint32_t lane, uint32_t (&keys)[C.per_lane]) {
  const uint32_t size = p.group_size;
  uint32_t group_key = 0;  // of the group with this lane's number
  for (uint32_t group = 0; group < p.groups; ++group) {
    const uint32_t first = lane - group * size;
    uint32_t best = 0, second = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.per_lane; ++i) {
      const uint32_t key = first + i * 32 < size ? keys[i] : 0;
      second = max_of(second, min_of(best, key));
      best = max_of(best, key);
    }
    uint32_t key = __reduce_max_sync(kAllLanes, best);
    if constexpr (C.group_score == GroupScore::top2_sum) {
      const uint32_t owner = __ffs(__ballot_sync(kAllLanes, best == key)) - 1;
      const uint32_t next = __reduce_max_sync(kAllLanes, lane == owner ? second : best);
      key = score_key(score_of_key(key) + score_of_key(next));
    }
    if (lane == group) group_key = key;
  }
  uint32_t kept = 0;  // a bit each
  for (uint32_t i = 0; i < p.kept_groups; ++i) {
    const uint32_t key = __reduce_max_sync(kAllLanes, group_key);
    const uint32_t group = __ffs(__ballot_sync(kAllLanes, group_key == key)) - 1;
    kept |= 1u << group;
    if (lane == group) group_key = 0;
  }
  for (uint32_t group = 0; group < p.groups; ++group) {
    if (kept >> group & 1) continue;
    const uint32_t first = lane - group * size;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.per_lane; ++i) {
      if (first + i * 32 < size) keys[i] = 0;
    }
  }
}

template <RouteConfig C>
CLEAVE_DEVICE void choose(const RouteParams& p) {
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t token = blockIdx.x * (kRouteThreads / 32) + threadIdx.x / 32;
  if (token >= p.tokens) return;
  const int64_t row = int64_t(token) * p.logits_stride;

  uint32_t keys[C.per_lane];  // first of the logits, which they say
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < C.per_lane; ++i) {
    const uint32_t expert = i * 32 + lane;
    keys[i] = expert < p.experts ? score_key(load_element(C.type, p.logits, row + expert)) : 0;
  }

  float largest = 0.0f, sum = 1.0f;
  if constexpr (sums_all(C)) {
    uint32_t of_lane = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.per_lane; ++i) of_lane = max_of(of_lane, keys[i] == kNanKey ? 0 : keys[i]);
    largest = score_of_key(__reduce_max_sync(kAllLanes, of_lane));
    sum = 0.0f;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.per_lane; ++i) {
      if (keys[i] != 0) sum += softmax_part(score_of_key(keys[i]), largest);
    }
    sum = sum_over_warp(sum);
  }
  if constexpr (compares_scores(C)) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.per_lane; ++i) {
      if (keys[i] == 0) continue;
      float score = expert_score(C.scoring_func, score_of_key(keys[i]), largest, sum);
      if constexpr (C.has_bias) score += p.bias[i * 32 + lane];
      keys[i] = score_key(score);
    }
  }
  if constexpr (C.has_groups) keep_best_groups<C>(p, lane, keys);

  uint32_t best = 0, best_expert = lane;
  const auto find_best = [&] {
    uint32_t first = 0;
    best = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.per_lane; ++i) {
      if (keys[i] > best) best = keys[i], first = i * 32;
    }
    best_expert = first + lane;
  };
  find_best();
  uint32_t chosen = 0;
  for (uint32_t choice = 0; choice < p.top_k; ++choice) {
    const uint32_t key = __reduce_max_sync(kAllLanes, best);
    const uint32_t expert = __reduce_min_sync(kAllLanes, best == key ? best_expert : 0xffffffffu);
    if (lane == choice) chosen = expert;
    if (best == key && best_expert == expert) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < C.per_lane; ++i) {
        if (i * 32 == expert - lane) keys[i] = 0;
      }
      find_best();
    }
  }

  const bool chooses = lane < p.top_k;
  const float logit = chooses ? load_element(C.type, p.logits, row + chosen) : 0.0f;
  float weight;
  if constexpr (weighs_chosen(C)) {
    const uint32_t key = chooses && logit == logit ? score_key(logit) : 0;
    largest = score_of_key(__reduce_max_sync(kAllLanes, key));
    weight = chooses ? softmax_part(logit, largest) : 0.0f;
    weight /= sum_over_warp(weight);
  } else {
    weight = chooses ? expert_score(C.scoring_func, logit, largest, sum) : 0.0f;
    if constexpr (C.renormalize) weight /= sum_over_warp(weight) + kLeastScoreSum;
  }
  if (!chooses) return;
  const uint32_t slot = token * p.top_k + lane;
  p.ids[slot] = int32_t(chosen);
  p.weights[slot] = weight * p.routed_scaling_factor;
}

}  // namespace cleave
