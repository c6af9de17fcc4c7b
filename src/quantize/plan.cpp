// From a QuantizeProblem to its plan: look up, or validate and make.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/plan_map.h"
#include "quantize/cpu_plan.h"
#include "quantize/gpu_plan.h"
#include "quantize/problem.h"
#include "quantize/problem_hash.h"

namespace cleave {
namespace {

using Plans = PlanMap<QuantizeProblem, QuantizePlan, QuantizeHash>;

Plans& plans() {
  static Plans plans;
  return plans;
}

}  // namespace

std::shared_ptr<const QuantizePlan> plan(const QuantizeProblem& problem) {
  if (auto known = plans().find(problem)) return known;
  if (const auto broken = validate(problem); !broken.empty()) {
    throw Error(types_are_served(problem) ? ErrorCode::invalid_argument : ErrorCode::invalid_type,
                fmt::format("{}", fmt::join(broken, "; ")));
  }
  return plans().insert(problem,
                        problem.device == kCpu ? make_cpu_plan(problem) : make_gpu_plan(problem));
}

}  // namespace cleave
