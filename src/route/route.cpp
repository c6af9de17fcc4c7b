// From a problem to its plan.
#include "cleave/route.h"

#include "cleave/device.h"
#include "problem/cached_plan.h"
#include "route/launches.h"
#include "route/problem.h"

namespace cleave {
namespace {

std::shared_ptr<const RoutePlan> make_gpu_plan(const RouteProblem& problem) {
  device_info(problem.device);  // throws if there is no such device
  return make_sequence_plan<RoutePlan, RouteArguments>(
      problem, route_entry, route_launches(problem), WorkspaceSize{},
      [](RouteParams& params, const RouteArguments& arguments, const Workspace&) {
        params.logits = arguments.logits;
        params.bias = arguments.bias;
        params.ids = arguments.ids;
        params.weights = arguments.weights;
      });
}

}  // namespace

std::shared_ptr<const RoutePlan> plan(const RouteProblem& problem) {
  return cached_plan<RoutePlan, kMostRoutePlanBytes>(problem, make_gpu_plan);
}

}  // namespace cleave
