// Routing on the host.
#include <vector>

#include "cleave/core/element.h"
#include "cleave/core/math.h"
#include "cleave/route/score.h"
#include "cpu/host_plan.h"
#include "route/problem.h"
#include "route/warp_sum.h"

namespace cleave {
namespace {

/// One run.
class Job {
 public:
  Job(const RouteProblem& problem, const RouteArguments& arguments, uint32_t threads)
      : p_(problem),
        config_(config_of(problem)),
        arguments_(arguments),
        experts_(uint32_t(p_.experts)),
        threads_(threads_for(p_.tokens * p_.experts, threads)) {}

  void run() {
    for_each(threads_, p_.tokens, [&](uint32_t token) { route(token); });
  }

 private:
  void route(uint32_t token) const {
    std::vector<float> logits(experts_);
    for (uint32_t expert = 0; expert < experts_; ++expert)
      logits[expert] = load_element(config_.type, arguments_.logits, token * p_.logits.stride_row + expert);

    float largest = 0.0f, sum = 1.0f;
    if (sums_all(config_)) {
      largest = largest_of(logits);
      sum = sum_of_parts(logits, largest);
    }
    std::vector<uint32_t> keys(experts_);
    for (uint32_t expert = 0; expert < experts_; ++expert) {
      float compared = logits[expert];
      if (compares_scores(config_)) compared = expert_score(config_.scoring_func, compared, largest, sum);
      if (config_.has_bias) compared += arguments_.bias[expert];
      keys[expert] = score_key(compared);
    }
    if (config_.has_groups) keep_best_groups(keys);

    int32_t* const ids = arguments_.ids + token * p_.top_k;
    float* const weights = arguments_.weights + token * p_.top_k;
    std::vector<float> chosen(size_t(p_.top_k));
    for (int64_t choice = 0; choice < p_.top_k; ++choice) {
      const uint32_t expert = take_best(keys);
      ids[choice] = int32_t(expert);
      chosen[size_t(choice)] = logits[expert];
    }
    weigh(chosen, largest, sum, weights);
  }

  void weigh(const std::vector<float>& chosen, float largest, float sum, float* weights) const {
    if (weighs_chosen(config_)) {
      largest = largest_of(chosen);
      sum = sum_of_parts(chosen, largest);
    }
    WarpSum scores;
    for (uint32_t i = 0; i < chosen.size(); ++i) {
      weights[i] = expert_score(config_.scoring_func, chosen[i], largest, sum);
      scores.add(i, weights[i]);
    }
    const bool divides = config_.renormalize && !weighs_chosen(config_);
    const float divisor = divides ? scores.total() + kLeastScoreSum : 1.0f;
    for (uint32_t i = 0; i < chosen.size(); ++i) weights[i] = weights[i] / divisor * p_.routed_scaling_factor;
  }

  void keep_best_groups(std::vector<uint32_t>& keys) const {
    const uint32_t groups = uint32_t(p_.n_group), size = experts_ / groups;
    std::vector<uint32_t> of_groups(groups);
    for (uint32_t group = 0; group < groups; ++group) {
      uint32_t best = 0, second = 0;
      for (uint32_t expert = group * size; expert < (group + 1) * size; ++expert) {
        second = max_of(second, min_of(best, keys[expert]));
        best = max_of(best, keys[expert]);
      }
      const bool adds = config_.group_score == GroupScore::top2_sum;
      of_groups[group] = adds ? score_key(score_of_key(best) + score_of_key(second)) : best;
    }
    std::vector<bool> kept(groups);
    for (int64_t i = 0; i < p_.topk_group; ++i) kept[take_best(of_groups)] = true;
    for (uint32_t expert = 0; expert < experts_; ++expert) {
      if (!kept[expert / size]) keys[expert] = 0;
    }
  }

  /// The first that has the largest key, which it loses.
  static uint32_t take_best(std::vector<uint32_t>& keys) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < keys.size(); ++i) {
      if (keys[i] > keys[best]) best = i;
    }
    keys[best] = 0;
    return best;
  }

  /// The largest that is no NaN; a NaN where there is nothing else.
  static float largest_of(const std::vector<float>& logits) {
    uint32_t key = 0;
    for (const float logit : logits) key = max_of(key, logit == logit ? score_key(logit) : 0u);
    return score_of_key(key);
  }

  static float sum_of_parts(const std::vector<float>& logits, float largest) {
    WarpSum sum;
    for (uint32_t i = 0; i < logits.size(); ++i) sum.add(i, softmax_part(logits[i], largest));
    return sum.total();
  }

  const RouteProblem& p_;
  const RouteConfig config_;
  const RouteArguments& arguments_;
  const uint32_t experts_, threads_;
};

}  // namespace

std::shared_ptr<const RoutePlan> make_cpu_plan(const RouteProblem& problem, uint32_t threads) {
  return std::make_shared<HostPlan<RoutePlan, RouteProblem, RouteArguments, Job>>(problem, threads);
}

}  // namespace cleave
