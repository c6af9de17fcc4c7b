// Runs a planned product on threads: every split-K mode, by the schedule and the epilogue of the
// GPU kernels.
#pragma once

#include "cleave/gemm.h"
#include "cpu/tiling.h"

namespace cleave::cpu {

/// Returns when D is complete, whatever `partials` holds: room for tiling.partials tiles. `threads`
/// bounds the threads used and does not change the result by a bit.
void execute(const GemmProblem& problem, const Tiling& tiling, const GemmArguments& arguments, void* partials,
             uint32_t threads);

}  // namespace cleave::cpu
