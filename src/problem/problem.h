// Facts that follow from a GemmProblem alone, whatever device runs it; launch/product.h has those
// that a launch needs.
#pragma once

#include <optional>

#include "cleave/gemm.h"
#include "launch/product.h"

namespace cleave {

/// The order in which D, and C if it takes part, have unit stride (row order where both serve, as
/// for vectors). Nothing if there is none.
std::optional<Order> output_order(const GemmProblem& problem);

/// True if the sums of products are int32: of 8-bit integers, unless every 128 of K have scales of
/// their own. They are exact for K up to 131071, where the largest, 128 * 128 * K, still fits;
/// beyond, they are exact modulo 2^32, as the tensor cores' are.
bool sums_are_integers(const GemmProblem& problem);

/// Whether it is a product of matrices, neither grouped nor a convolution.
inline bool is_product(const GemmProblem& problem) {
  return problem.conv.kind == Conv::none && problem.groups.dimension == Grouping::none;
}

/// That with as many rows as its groups are expected to have (GroupLayout::expected_m): whose kernels are compared.
GemmProblem as_expected(GemmProblem problem);

/// Whether the split and the family of kernels are left to the planner.
bool is_automatic(const GemmProblem& problem);

/// Whether rows of D can be promised to be the same in every batch: what Determinism::batch_invariant serves.
bool may_be_batch_invariant(const GemmProblem& problem);

/// Whether K is not split, or split without a change of bits: what Determinism::k_order serves of those.
bool may_keep_k_order(const GemmProblem& problem);

/// `wanted`, or the most of it that the problem can be promised.
Determinism most_promised(const GemmProblem& problem, Determinism wanted);

inline bool is_batch_invariant(const GemmProblem& problem) {
  return problem.deterministic >= Determinism::batch_invariant;
}

/// Whether every plan must sum K in the same order: not where integers are summed, of which all have the same bits.
inline bool has_one_order(const GemmProblem& problem) {
  return is_batch_invariant(problem) && !sums_are_integers(problem);
}

/// The epilogue function's, if it is ready-made, or else none.
Activation activation_of(const GemmProblem& problem);

/// What messages say of an epilogue function, and of a gated one.
const char* name_of_epilogue(const GemmProblem& problem);
const char* gate_of(const GemmProblem& problem);

/// What the product's kernel reduces an output of the epilogue function by, one beside D: none where a step of its own
/// does, which is given a matrix (plan/plans/staged_reductions.h). And whether there is such an output.
Reduction reduction_within(const GemmProblem& problem, uint32_t output);
bool reduces(const GemmProblem& problem);

/// Multiplications and additions of A @ B, over all batch entries; of groups as if they covered
/// their dimension, which only the device knows; of a convolution, whatever its kind, of every tap
/// for every output.
double flops(const GemmProblem& problem);

/// Bytes that any implementation must move: every operand, bias and scale read once (also what all
/// batch entries share), D written once. Empty groups count, too; a convolution's images only where
/// taps land.
double minimum_bytes(const GemmProblem& problem);

/// A's and B's part of them: what a batch broadcasts counts once.
double bytes_of_a(const GemmProblem& problem);
double bytes_of_b(const GemmProblem& problem);

}  // namespace cleave
