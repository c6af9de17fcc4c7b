// Routers: from a token's logits to the experts that it goes to, and their weights.
//
//   cleave::RouteProblem problem{.tokens = 64, .experts = 256, .top_k = 8, ...};
//   cleave::plan(problem)->run({.logits = logits, .ids = ids, .weights = weights}, stream);
//
// cleave/moe.h sorts tokens by the result.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cleave/core/routing.h"
#include "cleave/gemm.h"

namespace cleave {

inline constexpr int64_t kMostRoutedExperts = 512, kMostChoices = 32, kMostExpertGroups = 32;

/// What to compute for each token, as a plain value:
///
///   score  = scoring_func(logits)
///   chosen = the top_k experts with the largest score + bias, best first, out of the topk_group best of n_group groups
///            of neighbouring experts
///   weight = the score of each, over their sum if renormalize, times routed_scaling_factor
///
/// Ties go to the expert, or group, with the lower number, and NaNs come before all. If neither a bias nor a sum of
/// scores takes part in the choice, logits are compared, which tells apart scores that float32 rounds to the same
/// number.
struct RouteProblem {
  int64_t tokens = 0;
  int64_t experts = 1;                          ///< from 1 to kMostRoutedExperts
  int64_t top_k = 1;                            ///< from 1 to kMostChoices, and to what topk_group groups have
  MatrixLayout logits = {.dtype = DType::f32};  ///< [tokens, experts]; f16, bf16, f32; stride_col 1
  ScoringFunc scoring_func = ScoringFunc::softmax;
  bool has_bias = false;                          ///< affects the choice, not the weights
  int64_t n_group = 1, topk_group = 1;            ///< up to kMostExpertGroups; n_group divides experts
  GroupScore group_score = GroupScore::top2_sum;  ///< of at least two experts; read if topk_group < n_group
  bool renormalize = true;
  float routed_scaling_factor = 1.0f;
  int device = 0;  ///< CUDA ordinal, or kCpu

  friend bool operator==(const RouteProblem&, const RouteProblem&) = default;
};

/// Device pointers (host pointers on the CPU backend). All but logits are contiguous. Outputs must not overlap
/// anything.
struct RouteArguments {
  const void* logits = nullptr;
  const float* bias = nullptr;  ///< [experts]
  int32_t* ids = nullptr;       ///< [tokens, top_k], each from 0 to experts - 1, whatever the logits are
  float* weights = nullptr;     ///< [tokens, top_k]
};

/// Every rule that `problem` breaks, each with the value seen and the remedy. Empty: it can be
/// planned.
CLEAVE_API std::vector<std::string> validate(const RouteProblem& problem);

/// An immutable, thread-safe way to run one problem on one device: one launch.
///
/// Results are the same in every run. Devices differ in the last bits of exponentials, and therefore in the choice
/// among scores that are that close.
class CLEAVE_API RoutePlan : public Plan {
 public:
  virtual void run(const RouteArguments& arguments, void* stream) const = 0;

  virtual const RouteProblem& problem() const = 0;
};

/// The plan of `problem`, cached: as that of a product (gemm.h).
CLEAVE_API std::shared_ptr<const RoutePlan> plan(const RouteProblem& problem);

}  // namespace cleave
