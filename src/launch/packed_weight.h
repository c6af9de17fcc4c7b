// Where a packed weight's blocks and scales lie.
#pragma once

#include "cleave/memory/weight_layout.h"
#include "launch/product.h"

namespace cleave {

/// Places B that is a packed weight of which the rest is known: blocks and scales behind each other, and of nvfp4 one
/// global scale for each matrix. `shared`: one matrix for all of a batch.
inline void place_packed_weight(GemmProblem& p, bool shared = false) {
  const int64_t column = weight_extent(p.k);
  const bool several = entries_of_b(p) > 1 && !shared;
  WeightLayout& weights = p.weights_b;
  p.b.stride_row = 1;
  p.b.stride_col = column;
  p.b.stride_batch = several ? weight_extent(columns_of_b(p)) * column : 0;
  weights.scale_stride_k = columns_of_b(p);
  weights.scale_stride_batch = several ? ceil_div(p.k, max_of<int64_t>(weights.group, 1)) * columns_of_b(p) : 0;
  if (weights.format == WeightFormat::nvfp4) p.scale_b = {.kind = Scaling::vector, .stride_batch = several ? 1 : 0};
}

}  // namespace cleave
