// Which kernels a GPU runs for a problem, and how the work is dealt to their threads.
#pragma once

#include <vector>

#include "cleave/moe.h"
#include "cleave/moe/moe_params.h"
#include "moe/source.h"
#include "runtime/module.h"

namespace cleave {

struct MoeLaunch {
  MoeKernel kernel = MoeKernel::count;
  MoeConfig config;
  MoeParams params;  // but for the pointers
  LaunchShape shape;
};

/// In stream order. None where there is nothing to write. `problem` has passed `validate`.
std::vector<MoeLaunch> moe_launches(const MoeProblem& problem);

/// Elements of what launches leave for later ones, in the workspace's second part: `positions`,
/// then `counts`.
struct MoeScratch {
  size_t positions = 0, counts = 0;
};
MoeScratch moe_scratch(const std::vector<MoeLaunch>& launches);

}  // namespace cleave
