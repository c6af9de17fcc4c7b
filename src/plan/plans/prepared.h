// Products of known weights with any number of rows, whose kernels are all known ahead.
//
// prepare_rows() chooses a kernel for every M of a range once; plans of such products then look the choice up
// instead of predicting the time of each candidate, and launch nothing but those kernels. M falls into steps of
// kPreparedStep, of which all tiles are multiples, and of more where it is large, so one choice serves a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cleave/core/api.h"
#include "cleave/gemm.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/spec.h"

namespace cleave {

inline constexpr int64_t kPreparedStep = 16;

/// Chooses, of these kernels, for `problem` with an M from `first` to `last`, and keeps that for the process.
/// Returns a plan for each kernel that one of those M will run, the one with the largest workspace: who prepares
/// these has compiled all, and allocated enough. Throws Error(invalid_argument) for what is no product of automatic
/// split, or no range.
CLEAVE_TOOLS std::vector<std::shared_ptr<const GemmPlan>> prepare_rows(const GemmProblem& problem, int64_t first,
                                                                       int64_t last, Kernels kernels);

/// The choice for `problem`, if it is of a range that was prepared.
std::optional<Spec> prepared(const GemmProblem& problem);

}  // namespace cleave
