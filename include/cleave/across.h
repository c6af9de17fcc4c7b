// Products of which several GPUs have a part of K each, and which add up themselves what all of them have: no memory,
// no launch and no meeting between product and sum.
//
//   cleave::AcrossProblem problem{.product = ..., .ranks = group->size(), .partial = cleave::DType::bf16};
//   if (auto plan = cleave::plan_across(problem))
//     plan->run({.a = a, .b = b, .d = d, .group = group.get(), .call = "layer 3"}, stream);
//
// A rank without such a plan multiplies into its staging and adds up by a fold that is `pushed` and `in_strips`
// (cleave/fold.h), in the same call: what is sent is the same, and so are the bits.
#pragma once

#include <cstdint>
#include <memory>

#include "cleave/gemm.h"

namespace cleave {

struct AcrossProblem {
  GemmProblem product;  ///< this rank's, with the epilogue of the whole sum; its D is the sum's
  int64_t ranks = 2;
  DType partial = DType::bf16;  ///< what each rank's sums are rounded to before they are added: f16, bf16, f32

  friend bool operator==(const AcrossProblem&, const AcrossProblem&) = default;
};

/// A plan whose arguments have a group of so many ranks; cached. nullptr where no kernel makes the sum so, or not with
/// the bits of product and fold: it wants a Hopper GPU, up to 64 rows, columns in multiples of 64, and a product that
/// is not split inside a GPU.
CLEAVE_API std::shared_ptr<const GemmPlan> plan_across(const AcrossProblem& problem);

}  // namespace cleave
