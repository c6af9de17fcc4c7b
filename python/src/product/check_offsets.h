// For debugging: the bounds of groups, which launches never read on the host, read there.
#pragma once

#include "inputs/operands.h"

namespace cleave::python {

/// Waits for the work on `stream`, reads the bounds, and throws Error(invalid_argument), naming the
/// first wrong one, unless every group lies within its dimension, apart from the others. Does
/// nothing for a product without groups. Throws Error(capture) while `stream` is being captured.
void check_offsets(const GemmOperands& operands, void* stream);

}  // namespace cleave::python
