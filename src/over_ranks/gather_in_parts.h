// A product of many gathered rows, which move while others are multiplied.
#pragma once

#include <vector>

#include "over_ranks/gather_form.h"
#include "over_ranks/product.h"

namespace cleave {

/// What one call does. This rank's rows leave for the other ranks by copies beside, part after part. Meanwhile it
/// multiplies them, and then the others', as their parts arrive; or all rows at once when the last are there.
///
/// Launches have addresses in the first of the places.
struct GatherInParts {
  struct Part {
    int64_t first, rows;            // of each rank's own
    std::vector<Product> arriving;  // of the other ranks' rows, if products are by rank
  };

  std::vector<GatheredTensor> tensors;
  std::vector<Part> parts;
  Product product;  // of this rank's rows, or of all of them
};

/// Plans it; d: [rows, columns]. Throws Error for operands that do not fit together.
GatherInParts make_in_parts(const GatherForm& form, const GatherTensors& tensors, const Operand& d,
                            const Places& places, PlanOptions options);

/// In the next place. all: nullptr, or a new [rows, K] of everybody's a.
void run(GatherInParts made, const GatherForm& form, Places& places, void* all, void* stream);

}  // namespace cleave
