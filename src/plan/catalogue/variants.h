// The ways in which a tile can serve problems of some shapes beside the usual one.
#pragma once

#include <vector>

#include "cleave/gemm.h"
#include "plan/choice/spec.h"

namespace cleave {

/// `tile` as it is, and in the ways that convolutions with few channels, or filters, and products with few rows have
/// beside.
std::vector<Spec> variants(const Spec& tile, const GemmProblem& problem);

/// Neither shared nor transposed nor of two tiles in turn: what threads that gather can serve.
bool is_plain(const Spec& tile);

}  // namespace cleave
