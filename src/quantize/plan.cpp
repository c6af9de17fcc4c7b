#include "plan/cached_plan.h"

#include "quantize/cpu_plan.h"
#include "quantize/gpu_plan.h"
#include "quantize/problem.h"
#include "quantize/problem_hash.h"

namespace cleave {

std::shared_ptr<const QuantizePlan> plan(const QuantizeProblem& problem) {
  return cached_plan<QuantizePlan, QuantizeHash, kMostQuantizePlanBytes>(problem, [&] {
    return problem.device == kCpu ? make_cpu_plan(problem) : make_gpu_plan(problem);
  });
}

}  // namespace cleave
