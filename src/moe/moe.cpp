// From a problem to its plan.
#include "cleave/moe.h"

#include "cleave/device.h"
#include "moe/launches.h"
#include "moe/problem.h"
#include "problem/cached_plan.h"
#include "process/host_bytes.h"

namespace cleave {
namespace {

class GpuPlan final : public MoePlan {
 public:
  explicit GpuPlan(const MoeProblem& problem) : GpuPlan(problem, moe_launches(problem)) {
    device_info(problem.device);  // throws if there is no such device
  }

  void run(const MoeArguments& arguments, void* stream) const override {
    check_arguments(problem_, arguments);
    kernels_.run(stream, [&](MoeParams& params, const Workspace& space) {
      params.ids = arguments.ids;
      params.offsets = arguments.offsets;
      params.indices = arguments.indices;
      params.tokens = arguments.tokens;
      params.rows = arguments.rows;
      params.rows_grad = arguments.rows_grad;
      params.weights = arguments.weights;
      params.weights_grad = arguments.weights_grad;
      params.arrived = static_cast<uint32_t*>(space.counters);
      if (scratch_.positions != 0) params.positions = static_cast<int32_t*>(space.partials);
      params.counts = static_cast<uint32_t*>(space.partials) + scratch_.positions;
    });
  }

  void prepare(void* stream) const override { kernels_.prepare(stream); }
  const MoeProblem& problem() const override { return problem_; }
  std::string kernel_name() const override { return kernels_.name(); }
  std::string kernel_source() const override { return kernels_.source(); }
  size_t host_bytes() const override { return shared_bytes(*this) + kernels_.heap_bytes(); }

 private:
  GpuPlan(const MoeProblem& problem, const std::vector<MoeLaunch>& launches)
      : problem_(problem),
        scratch_(moe_scratch(launches)),
        kernels_(problem.device, moe_entry, launches, scratch_.workspace()) {}

  const MoeProblem problem_;
  const MoeScratch scratch_;
  const KernelSequence<MoeLaunch> kernels_;
};

}  // namespace

std::shared_ptr<const MoePlan> plan(const MoeProblem& problem) {
  return cached_plan<MoePlan, kMostMoePlanBytes>(problem, [&]() -> std::shared_ptr<const MoePlan> {
    if (problem.device == kCpu) return make_cpu_plan(problem);
    return std::make_shared<GpuPlan>(problem);
  });
}

}  // namespace cleave
