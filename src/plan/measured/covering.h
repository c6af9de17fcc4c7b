// The covering sets: for each type and layout, few kernels that serve products of all sizes about as well as the
// whole catalogue. A server that keeps to them compiles nothing for a new number of tokens.
//
// `python -m bench.cover` makes them of measured pairs and writes covering/h200.txt, whose lines are
//   job | kernel      e.g.  bf16 tn | sm90 64x48 transposed parallel 1 clusters 4
// with kernels as kernel_of() has them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cleave/core/api.h"
#include "cleave/gemm.h"
#include "plan/choice/spec.h"

namespace cleave {

/// What is compiled for a spec: slices of serial, parallel and stream_k are a launch's to say, and here 1.
Spec kernel_of(Spec spec);

/// The set for the problem's types, layouts and scales; empty where there is none: packed weights,
/// float32 in other precisions than tf32, other kernels than Hopper's.
std::vector<Spec> covering_set(const GemmProblem& problem);

/// The problem by each kernel of its set that can serve it, where K is split in two slices.
CLEAVE_TOOLS std::vector<std::shared_ptr<const GemmPlan>> covering_plans(const GemmProblem& problem);

/// Jobs that covering_set() may ask the table for.
std::span<const char* const> covering_jobs();

}  // namespace cleave
