// Packed weights, as the CPU backend multiplies them.
#pragma once

#include "cleave/gemm.h"
#include "cpu/pack.h"

namespace cleave::cpu {

/// `k` of some columns of B, a packed weight, as pack_b's panels of `k.count` elements. Elements are rounded to B's
/// type, as on a GPU. `entry`: of the batch, or the group.
void pack_weights(const GemmProblem& problem, const GemmArguments& arguments, uint32_t entry, Span columns, Span k,
                  float* out);

}  // namespace cleave::cpu
