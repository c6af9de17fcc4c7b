// D in 8 bits with scales that are found, in two launches: the product leaves D in float32 in the workspace, and a
// kernel behind it quantises that. The product then has all tiles to choose from, where in one kernel a scale's columns
// are one CTA's. It may leave both halves of gated columns, which the second kernel joins: so few rows can take the
// narrow side of a tile. D and its scales are the same bits as one kernel's, for the same sums.
#pragma once

#include "cleave/device.h"
#include "cleave/problem.h"
#include "cleave/quantize.h"

namespace cleave {

/// Whether it serves the problem: one matrix, no batch and no groups. `halves`: of gated columns.
bool may_quantize_apart(const GemmProblem& problem, bool halves);

/// The product whose D is quantised apart.
GemmProblem unquantized(const GemmProblem& problem, bool halves);

/// Bytes of that product's D, and what may lie before it until it is aligned.
size_t unquantized_bytes(const GemmProblem& product);

/// What the second kernel does.
QuantizeProblem quantization_of(const GemmProblem& problem, bool halves);

/// And its time, by a model. `product`: as `unquantized` has it, or that transposed.
double quantize_apart_us(const GemmProblem& product, bool halves, const DeviceInfo& device);

}  // namespace cleave
