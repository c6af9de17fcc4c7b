#include "plan/cached_plan.h"

#include "moe/cpu_plan.h"
#include "moe/gpu_plan.h"
#include "moe/problem.h"
#include "moe/problem_hash.h"

namespace cleave {

std::shared_ptr<const MoePlan> plan(const MoeProblem& problem) {
  return cached_plan<MoePlan, MoeHash, kMostMoePlanBytes>(problem, [&] {
    return problem.device == kCpu ? make_cpu_plan(problem) : make_gpu_plan(problem);
  });
}

}  // namespace cleave
