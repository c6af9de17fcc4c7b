// Chooses the split-K mode and the slices of a problem on the CPU.
#pragma once

#include <string>
#include <vector>

#include "cleave/gemm.h"
#include "cpu/tiling.h"

namespace cleave::cpu {

struct Choice {
  Tiling tiling;
  std::vector<Candidate> candidates;  ///< cheapest first, predicted for `threads`
  std::string why;
};

/// What the problem asks for is kept. The rest is what a cost model prefers for a machine of
/// kNominalThreads: `threads` changes only the predictions, so that results do not depend on it.
Choice choose(const GemmProblem& problem, uint32_t threads);

inline constexpr uint32_t kNominalThreads = 16;

/// max(bytes / bandwidth, operations / peak) of a nominal processor core, in microseconds.
double roofline_us(const GemmProblem& problem, uint32_t threads);

}  // namespace cleave::cpu
