// From a problem to its plan.
#include "cleave/fold.h"

#include <algorithm>

#include "cleave/device.h"
#include "peers/fold_launch.h"
#include "peers/fold_problem.h"
#include "problem/cached_plan.h"

namespace cleave {
namespace {

std::shared_ptr<const FoldPlan> make_gpu_plan(const FoldProblem& problem) {
  device_info(problem.device);  // throws if there is no such device
  return make_sequence_plan<FoldPlan, FoldArguments>(
      problem, fold_entry, fold_launches(problem), WorkspaceSize{},
      [](FoldParams& params, const FoldArguments& arguments, const Workspace&) {
        if (arguments.group != nullptr) params.meeting = arguments.group->meeting(arguments.call);
        std::ranges::copy(arguments.partials, params.partials);
        params.scale_a = arguments.scale_a;
        params.scale_b = arguments.scale_b;
        params.c = arguments.c;
        params.bias = arguments.bias;
        params.scale_d = arguments.scale_d;
        params.scale_out = arguments.scale_out;
        params.d = arguments.d;
      });
}

}  // namespace

std::shared_ptr<const FoldPlan> plan(const FoldProblem& problem) {
  return cached_plan<FoldPlan, kMostFoldPlanBytes>(problem, make_gpu_plan);
}

}  // namespace cleave
