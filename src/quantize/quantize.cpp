// From a problem to its plan.
#include "cleave/quantize.h"

#include "problem/cached_plan.h"
#include "quantize/launches.h"
#include "quantize/problem.h"

namespace cleave {
namespace {

std::shared_ptr<const QuantizePlan> make_gpu_plan(const QuantizeProblem& problem) {
  std::vector<QuantizeLaunch> launches = quantize_launches(problem, device_info(problem.device));
  const WorkspaceSize workspace = quantize_workspace(launches);
  return make_sequence_plan<QuantizePlan, QuantizeArguments>(
      problem, quantize_entry, std::move(launches), workspace,
      [](QuantizeParams& params, const QuantizeArguments& arguments, const Workspace& space) {
        params.x = arguments.x;
        params.q = arguments.q;
        params.scale.data = arguments.scale;
        params.zero = arguments.zero;
        params.smooth = arguments.smooth;
        params.q_t = arguments.q_t;
        params.scale_t.data = arguments.scale_t;
        params.group_bounds.offsets = arguments.offsets;
        params.padded_ends = arguments.padded_ends;
        params.counters = static_cast<uint32_t*>(space.counters);
        params.band_table = static_cast<Band*>(space.partials);
      });
}

}  // namespace

std::shared_ptr<const QuantizePlan> plan(const QuantizeProblem& problem) {
  return cached_plan<QuantizePlan, kMostQuantizePlanBytes>(
      problem, [&] { return problem.device == kCpu ? make_cpu_plan(problem) : make_gpu_plan(problem); });
}

}  // namespace cleave
