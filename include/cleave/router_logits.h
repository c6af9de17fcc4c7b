// A router's logits: a few rows of activations times weights that may have another type.
//
//   cleave::RouterLogitsProblem problem{.tokens = 4, .experts = 128, .features = 6144, ...};
//   cleave::plan(problem)->run({.x = x, .weight = weight, .logits = logits}, stream);
//
// cleave/route.h chooses experts by the result.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cleave/gemm.h"

namespace cleave {

/// What to compute, as a plain value: logits = x @ weight^T, in float32 throughout.
///
/// A product with a 16-bit factor is exact, and rounded once, when it is added (multiply_add). K is dealt to 8 parts,
/// and to 32 lanes of each, which take 4 neighbours at a time in the order of K; their sums are added up in a fixed
/// order. So a logit has the same bits on every device, whatever the other tokens are.
struct RouterLogitsProblem {
  int64_t tokens = 0;
  int64_t experts = 1;
  int64_t features = 0;                         ///< K; without any, logits are 0
  MatrixLayout x = {.dtype = DType::bf16};      ///< [tokens, features]; f16, bf16, f32; stride_col 1
  MatrixLayout weight = {.dtype = DType::f32};  ///< [experts, features]; f16, bf16, f32; stride_col 1
  bool static_weight = false;                   ///< no work that may still be running writes it: loads start early
  int device = 0;                               ///< CUDA ordinal, or kCpu

  friend bool operator==(const RouterLogitsProblem&, const RouterLogitsProblem&) = default;
};

/// Device pointers (host pointers on the CPU backend). Outputs must not overlap anything.
struct RouterLogitsArguments {
  const void* x = nullptr;
  const void* weight = nullptr;
  float* logits = nullptr;  ///< [tokens, experts], contiguous
};

/// Every rule that `problem` breaks, each with the value seen and the remedy. Empty: it can be
/// planned.
CLEAVE_API std::vector<std::string> validate(const RouterLogitsProblem& problem);

/// An immutable, thread-safe way to run one problem on one device: one launch, without a workspace.
class CLEAVE_API RouterLogitsPlan : public Plan {
 public:
  virtual void run(const RouterLogitsArguments& arguments, void* stream) const = 0;

  virtual const RouterLogitsProblem& problem() const = 0;
};

/// The plan of `problem`, cached: as that of a product (gemm.h).
CLEAVE_API std::shared_ptr<const RouterLogitsPlan> plan(const RouterLogitsProblem& problem);

}  // namespace cleave
