// From a problem to its plan.
#include "cleave/quantize.h"

#include <algorithm>

#include "base/refuse.h"
#include "problem/cached_plan.h"
#include "quantize/launches.h"
#include "quantize/problem.h"
#include "quantize/row_range.h"

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
        params.weight = arguments.weight;
        params.bias = arguments.bias;
        params.residual = arguments.residual;
        params.residual_out = arguments.residual_out;
        params.normed = arguments.normed_out;
        params.q_t = arguments.q_t;
        params.scale_t.data = arguments.scale_t;
        params.group_bounds.offsets = arguments.offsets;
        params.padded_ends = arguments.padded_ends;
        params.counters = static_cast<uint32_t*>(space.counters);
        params.band_table = static_cast<Band*>(space.partials);
        params.statistics = reinterpret_cast<RowStatistics*>(params.band_table + params.bands);
      });
}

}  // namespace

std::vector<std::shared_ptr<const QuantizePlan>> plans_of_rows(const QuantizeProblem& problem, int64_t first,
                                                               int64_t last) {
  if (problem.device == kCpu || problem.groups > 0) {
    refuse_value("only quantisation on a GPU, without groups, can be prepared for any number of rows");
  }
  if (first < 1 || last < first) {
    refuse_value("rows are {} to {}; the first must be at least 1, and the last no less", first, last);
  }
  const DeviceInfo& device = device_info(problem.device);
  std::vector<QuantizeLaunch> known;
  std::vector<std::shared_ptr<const QuantizePlan>> plans;
  QuantizeProblem p = problem;
  for (p.rows = first; p.rows <= last; ++p.rows) {
    bool is_new = false;
    for (const QuantizeLaunch& launch : quantize_launches(p, device)) {
      const auto same = [&](const QuantizeLaunch& x) { return x.kernel == launch.kernel && x.config == launch.config; };
      if (std::ranges::any_of(known, same)) continue;
      known.push_back(launch);
      is_new = true;
    }
    if (is_new) plans.push_back(make_gpu_plan(p));
  }
  return plans;
}

std::shared_ptr<const QuantizePlan> plan(const QuantizeProblem& problem) {
  return cached_plan<QuantizePlan, kMostQuantizePlanBytes>(problem, make_gpu_plan);
}

}  // namespace cleave
