// A sum over ranks that begins when all partial results are there: a product, and the kernel that adds up behind it, or
// the product alone, which makes the sum itself.
#pragma once

#include <memory>

#include "cleave/fold.h"
#include "over_ranks/sum_form.h"

namespace cleave {

/// Launches with all that they are given, in the first of the places.
struct SumAtOnce {
  std::shared_ptr<const GemmPlan> product;  // nullptr: a is it, and is copied
  GemmArguments product_arguments;
  std::shared_ptr<const FoldPlan> fold;  // nullptr: the product makes the sum itself
  FoldArguments fold_arguments;
  void* d = nullptr;      // what this rank gets
  size_t first_of_c = 0;  // bytes to the rows of c that this rank adds
};

/// Where what a call reads is, and what it makes.
struct SumAddresses {
  const void *a, *b, *scale_a, *scale_b, *bias, *c, *scale_d;
  void* d;
};

/// Plans it. `form` outlives it. Throws Error for operands that do not fit together.
SumAtOnce make_at_once(const SumForm& form, const SumTensors& tensors, const SumResults& results, const Places& places,
                       const PlanOptions& options);

/// Points a sum of floats, which was made for other tensors that lie alike, at these.
void point(SumAtOnce& made, const SumForm& form, const SumAddresses& to);

/// In the next place.
void run(SumAtOnce made, const SumForm& form, Places& places, void* stream);

}  // namespace cleave
