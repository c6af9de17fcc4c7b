// From a problem to its plan.
#include "cleave/quantize.h"

#include "problem/cached_plan.h"
#include "process/host_bytes.h"
#include "quantize/launches.h"
#include "quantize/problem.h"

namespace cleave {
namespace {

class GpuPlan final : public QuantizePlan {
 public:
  explicit GpuPlan(const QuantizeProblem& problem)
      : GpuPlan(problem, quantize_launches(problem, device_info(problem.device))) {}

  void run(const QuantizeArguments& arguments, void* stream) const override {
    check_arguments(problem_, arguments);
    kernels_.run(stream, [&](QuantizeParams& params, const Workspace& space) {
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

  void prepare(void* stream) const override { kernels_.prepare(stream); }
  const QuantizeProblem& problem() const override { return problem_; }
  std::string kernel_name() const override { return kernels_.name(); }
  std::string kernel_source() const override { return kernels_.source(); }
  size_t host_bytes() const override { return shared_bytes(*this) + kernels_.heap_bytes(); }

 private:
  GpuPlan(const QuantizeProblem& problem, const std::vector<QuantizeLaunch>& launches)
      : problem_(problem), kernels_(problem.device, quantize_entry, launches, quantize_workspace(launches)) {}

  const QuantizeProblem problem_;
  const KernelSequence<QuantizeLaunch> kernels_;
};

}  // namespace

std::shared_ptr<const QuantizePlan> plan(const QuantizeProblem& problem) {
  return cached_plan<QuantizePlan, kMostQuantizePlanBytes>(problem, [&]() -> std::shared_ptr<const QuantizePlan> {
    if (problem.device == kCpu) return make_cpu_plan(problem);
    return std::make_shared<GpuPlan>(problem);
  });
}

}  // namespace cleave
