// From a problem to its plan.
#include "cleave/moe.h"

#include "cleave/device.h"
#include "moe/launches.h"
#include "moe/problem.h"
#include "problem/cached_plan.h"

namespace cleave {
namespace {

std::shared_ptr<const MoePlan> make_gpu_plan(const MoeProblem& problem) {
  device_info(problem.device);  // throws if there is no such device
  std::vector<MoeLaunch> launches = moe_launches(problem);
  const MoeScratch scratch = moe_scratch(launches);
  return make_sequence_plan<MoePlan, MoeArguments>(
      problem, moe_entry, std::move(launches), scratch.workspace(),
      [scratch](MoeParams& params, const MoeArguments& arguments, const Workspace& space) {
        params.ids = arguments.ids;
        params.offsets = arguments.offsets;
        params.indices = arguments.indices;
        params.tokens = arguments.tokens;
        params.rows = arguments.rows;
        params.row_scales = arguments.row_scales;
        params.rows_grad = arguments.rows_grad;
        params.weights = arguments.weights;
        params.weights_grad = arguments.weights_grad;
        params.counters = static_cast<ChunkCounters*>(space.counters);
        if (scratch.positions != 0) params.positions = static_cast<int32_t*>(space.partials);
        params.counts = static_cast<uint32_t*>(space.partials) + scratch.positions;
      });
}

}  // namespace

std::shared_ptr<const MoePlan> plan(const MoeProblem& problem) {
  return cached_plan<MoePlan, kMostMoePlanBytes>(problem, make_gpu_plan);
}

}  // namespace cleave
