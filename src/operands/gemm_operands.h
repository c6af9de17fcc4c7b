// From the tensors of a call to a GemmProblem and its pointers: what every front end shares.
#pragma once

#include <optional>

#include "cleave/gemm.h"
#include "operands/operand.h"

namespace cleave {

/// Absent ones are empty.
struct GemmTensors {
  std::optional<Operand> a, b, c, bias, out;  ///< a and b are never absent
  std::optional<Operand> scale_a, scale_b, scale_d, amax;
  std::optional<Operand> azp, azp_adj;
};

/// A product but for the options that tensors do not determine.
struct GemmCall {
  GemmProblem problem;
  GemmArguments arguments;  ///< without d if there is no `out`
  bool batched = false;     ///< D has three dimensions
};

/// Throws Error for everything that is wrong with one tensor or with how they fit together; shared
/// memory is for GemmPlan::run to refuse. Without `out`, D is packed row by row and has `d_type`,
/// or else default_output.
GemmCall make_call(const GemmTensors& tensors, std::optional<DType> d_type);

/// D's type where nobody names one: A's, or, of 8-bit operands, bfloat16; of int8 without scales
/// int32.
DType default_output(const GemmProblem& problem);

/// Without `beta`, C counts once. Throws Error(invalid_argument) for a beta without a C.
void set_scalars(float alpha, std::optional<float> beta, GemmCall& call);

/// Without a count 0, the planner's choice. Throws Error(invalid_argument) for what is no count.
int32_t slice_count(std::optional<int64_t> slices);

}  // namespace cleave
