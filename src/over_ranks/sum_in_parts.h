// A large sum over ranks, whose parts move while others are multiplied.
#pragma once

#include <memory>
#include <vector>

#include "cleave/fold.h"
#include "over_ranks/product.h"
#include "over_ranks/sum_form.h"

namespace cleave {

/// What one call does. First this rank makes the products of the others' rows, each of which leaves by a copy beside
/// while the next is made; then those of its own rows, to which it adds what has come from the others. Where all ranks
/// get all rows, these are fetched by copies beside, too, part after part.
///
/// Launches have addresses in the first of the places.
struct SumInParts {
  struct Leaving {
    Product product;
    int owner;
  };

  struct Part {
    int64_t first, rows;                   // of each rank's own
    std::vector<Leaving> leaving;          // the next rank's first, so that none receives from all at once
    Product joined;                        // of this rank's, with what has come as inputs of its epilogue
    std::shared_ptr<const FoldPlan> fold;  // or what adds up behind `own`
    FoldArguments fold_arguments;
  };

  std::vector<Part> parts;
  Product own;        // of all rows that this rank adds up, if no epilogue does
  void* d = nullptr;  // what this rank gets
};

/// Bytes of a buffer for what leaves.
size_t leaving_bytes(const SumForm& form, const Group& group);

/// Plans it. `form` outlives it. Throws Error for operands that do not fit together.
SumInParts make_in_parts(const SumForm& form, const SumTensors& tensors, const SumResults& results, void* leaving,
                         const Places& places, const PlanOptions& options);

/// In the next place.
void run(SumInParts made, const SumForm& form, Places& places, void* stream);

}  // namespace cleave
