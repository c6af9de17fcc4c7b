// From a problem to its plan.
#include "cleave/device.h"
#include "cleave/router_logits.h"
#include "problem/cached_plan.h"
#include "route/logits_launches.h"
#include "route/logits_problem.h"

namespace cleave {
namespace {

std::shared_ptr<const RouterLogitsPlan> make_gpu_plan(const RouterLogitsProblem& problem) {
  device_info(problem.device);  // throws if there is no such device
  return make_sequence_plan<RouterLogitsPlan, RouterLogitsArguments>(
      problem, logits_entry, logits_launches(problem), WorkspaceSize{},
      [](LogitsParams& params, const RouterLogitsArguments& arguments, const Workspace&) {
        params.x = arguments.x;
        params.weight = arguments.weight;
        params.logits = arguments.logits;
      });
}

}  // namespace

std::shared_ptr<const RouterLogitsPlan> plan(const RouterLogitsProblem& problem) {
  return cached_plan<RouterLogitsPlan, kMostRoutePlanBytes>(problem, make_gpu_plan);
}

}  // namespace cleave
