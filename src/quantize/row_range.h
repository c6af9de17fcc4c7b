// Quantising any number of rows, with kernels that are all known ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cleave/core/api.h"
#include "cleave/quantize.h"

namespace cleave {

/// A plan for each kernel that `problem` runs with some number of rows from `first` to `last`: who prepares these has
/// compiled all. Throws Error(invalid_argument) for a problem of the CPU or of groups, and for no range.
CLEAVE_TOOLS std::vector<std::shared_ptr<const QuantizePlan>> plans_of_rows(const QuantizeProblem& problem,
                                                                            int64_t first, int64_t last);

}  // namespace cleave
