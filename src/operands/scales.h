// What tensors of scales cover, deduced from their shapes.
#pragma once

#include <optional>

#include "operands/operand.h"

namespace cleave {

struct ProductCall;

/// Throws Error(invalid_argument) if one of the scales is missing.
void check_both_scales(const std::optional<Operand>& scale_a, const std::optional<Operand>& scale_b);

/// Sets scale_d, by which D is divided, and amax, where its largest magnitude goes, if they are given.
/// `leader` is the name of the argument whose device it is.
void place_range(const std::optional<Operand>& scale_d, const std::optional<Operand>& amax, const char* leader,
                 ProductCall& call);

/// How scales relate to their operands.
struct ScaleForm {
  bool a_by_group = false;  ///< of two dimensions, the first counts groups: [G, m]
  bool b_by_group = false;
  bool a_is_transposed = false;  ///< those of A stand as those of B do
};

/// Sets the problem's scale_a and scale_b, its sizes and groups being known. Where a shape fits
/// more than one kind of scaling the simplest is taken: for one value, per row and column, per
/// block; but where groups of K begin with blocks, blocks before a vector for each group. Throws
/// Error(invalid_argument) for shapes that fit none, and for two that do not go together.
void place_scales(const Operand& scale_a, const Operand& scale_b, const ScaleForm& form, GemmProblem& problem);

/// Sets scale_a, of a row each or one for all, where B is a packed weight.
void place_row_scales(const Operand& scale_a, const ScaleForm& form, GemmProblem& problem);

}  // namespace cleave
