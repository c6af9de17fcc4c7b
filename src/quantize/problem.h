// Facts that follow from a QuantizeProblem alone, whatever device runs it.
#pragma once

#include "cleave/quantize.h"
#include "problem/placement.h"

namespace cleave {

/// True if kernels exist for the dtypes: of the broken rules of `validate`, none is about a
/// dtype.
bool types_are_served(const QuantizeProblem& problem);

// What a problem reads and writes. What takes no part in it is empty.
Placement x_of(const QuantizeProblem& problem);
Placement q_of(const QuantizeProblem& problem);
Placement scale_of(const QuantizeProblem& problem);
Placement zero_of(const QuantizeProblem& problem);
Placement smooth_of(const QuantizeProblem& problem);
Placement q_t_of(const QuantizeProblem& problem);
Placement scale_t_of(const QuantizeProblem& problem);
Placement offsets_of(const QuantizeProblem& problem);
Placement padded_ends_of(const QuantizeProblem& problem);

}  // namespace cleave
