// Facts that follow from a GemmProblem alone, whatever device runs it.
#pragma once

#include <optional>

#include "cleave/gemm.h"

namespace cleave {

/// The same product read the other way: D^T = B^T A^T. Its arguments are those of
/// `transposed(arguments)`.
GemmProblem transposed(const GemmProblem& problem);
GemmArguments transposed(const GemmArguments& arguments);

/// The order in which D, and C if it takes part, have unit stride (row order where both serve, as
/// for vectors). Nothing if there is none.
std::optional<Order> output_order(const GemmProblem& problem);

/// Multiplications and additions of A @ B, over all batch entries.
double flops(const GemmProblem& problem);

/// Bytes that any implementation must move: every operand read once (also one that all batch
/// entries share), D written once.
double minimum_bytes(const GemmProblem& problem);

}  // namespace cleave
