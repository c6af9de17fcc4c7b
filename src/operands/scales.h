// What tensors of scales cover, told from their shapes.
#pragma once

#include "operands/operand.h"

namespace cleave {

/// Sets the problem's scale_a and scale_b, its sizes being known. Of the shapes that fit more than
/// one kind of scaling the simpler is taken: for one value, per row and column, per block. Throws
/// Error(invalid_argument) for shapes that fit none, and for two that do not go together.
void place_scales(const Operand& scale_a, const Operand& scale_b, GemmProblem& problem);

}  // namespace cleave
