// From a problem to its plan: validate, look up, choose.
#include <fmt/format.h>

#include "base/refuse.h"
#include "cleave/device.h"
#include "cpu/cpu_plan.h"
#include "plan/batch_invariant.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/function_config.h"
#include "plan/explain.h"
#include "plan/make_plan.h"
#include "plan/measured/shape_log.h"
#include "plan/measured/tuned.h"
#include "plan/no_kernel.h"
#include "plan/plans/across.h"
#include "plan/plans/gpu_plan.h"
#include "plan/plans/parts_plan.h"
#include "plan/plans/prepared.h"
#include "plan/plans/staged_reductions.h"
#include "plan/plans/two_heights.h"
#include "problem/cached_plan.h"
#include "problem/problem.h"

namespace cleave {
namespace {

std::shared_ptr<const ChosenPlan> make_gpu(const GemmProblem& problem) {
  const DeviceInfo& device = device_info(problem.device);
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) {
    Choice nothing;
    nothing.problem = problem;
    nothing.rows_of_d = problem.m;
    nothing.config.epilogue.function = function_config(problem, false);  // what it reduces is of no elements
    return make_gpu_plan(problem, nothing, "D is empty: nothing is launched");
  }
  if (stages_reductions(problem)) return make_staged_plan(problem, make_gpu(staged(problem)));
  if (is_automatic(problem)) ShapeLog::user().add(problem);
  if (const auto spec = tuned(problem, device)) {
    if (const auto choice = make_choice(problem, device, *spec))
      return make_parts_plan(problem, *choice, explain(problem, *choice, 0));
  }
  if (const auto spec = prepared(problem)) {
    if (const auto choice = make_choice(problem, device, *spec))
      return make_gpu_plan(problem, *choice,
                           fmt::format("{}: prepared for these operands with any M", to_string(*spec)));
  }
  const Cheapest best = promised_cheapest(problem, device, user_kernels());
  if (!best.choice) refuse_unserved(problem, device);
  std::string why = explain(problem, *best.choice, best.considered);
  if (is_batch_invariant(problem)) why += explain_invariance(problem, device);
  if (const auto heights = find_two_heights(problem, device, *best.choice))
    return make_two_heights_plan(*heights, *best.choice, std::move(why));
  return make_parts_plan(problem, *best.choice, std::move(why));
}

std::shared_ptr<const ChosenPlan> make_as(const GemmProblem& problem, const Spec& spec) {
  if (stages_reductions(problem)) return make_staged_plan(problem, make_as(staged(problem), spec));
  const DeviceInfo& device = device_info(problem.device);
  const auto choice = make_choice(problem, device, spec);
  if (!choice) {
    refuse(ErrorCode::unsupported, "\"{}\" cannot serve this problem; see the plan's candidates", to_string(spec));
  }
  return make_parts_plan(problem, *choice, "asked for by name");
}

}  // namespace

std::string Plan::kernel_source() const {
  std::string text;
  for (const std::string& source : kernel_sources()) text += source;
  return text;
}

std::shared_ptr<const GemmPlan> plan(const GemmProblem& problem) {
  return cached_plan<GemmPlan, kMostGemmPlanBytes>(problem, make_gpu);
}

std::shared_ptr<const GemmPlan> plan_as(const GemmProblem& problem, const Spec& spec) {
  refuse_invalid(problem);
  return make_as(problem, spec);
}

std::string remember(const GemmPlan& plan) {
  const Choice* choice = choice_of(plan);
  if (choice == nullptr) {
    refuse_value("only plans for a GPU can be tuned; plan with a CUDA device");
  }
  if (plan.problem().epilogue.function != nullptr && activation_of(plan.problem()) == Activation::none) {
    refuse_value("the plan has an epilogue function, and runs as the product without one does; tune that");
  }
  GemmProblem problem = plan.problem();
  problem.split_k_mode = SplitKMode::automatic;
  problem.split_k_slices = 0;
  problem.kernel = KernelFamily::automatic;
  const std::string path = store_tuned(problem, device_info(problem.device), choice->spec);
  forget_plans();
  return path;
}

void forget_plans() {
  forget_plans_across();
  known_plans<GemmPlan, kMostGemmPlanBytes, GemmProblem>().clear();
}

}  // namespace cleave
