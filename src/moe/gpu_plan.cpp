#include "moe/gpu_plan.h"

#include <fmt/format.h>

#include "cleave/device.h"
#include "moe/arguments.h"
#include "moe/launches.h"
#include "process/host_bytes.h"
#include "runtime/context.h"
#include "runtime/lazy_kernel.h"
#include "runtime/stream_workspace.h"

namespace cleave {
namespace {

struct Step {
  explicit Step(const MoeLaunch& launch) : launch(launch) {}

  std::string source() const { return moe_source(launch.kernel, launch.config); }

  const Kernel& load(int device, CUstream stream) const {
    return kernel.get(stream, [&] {
      return KernelRequest{to_string(launch.kernel),
                           source(),
                           moe_entry,
                           device,
                           {launch.shape.dynamic_shared_bytes}};
    });
  }

  const MoeLaunch launch;
  const LazyKernel kernel;
};

class GpuPlan final : public MoePlan {
 public:
  explicit GpuPlan(const MoeProblem& problem) : problem_(problem) {
    device_info(problem.device);  // throws if there is no such device
    const std::vector<MoeLaunch> launches = moe_launches(problem);
    scratch_ = moe_scratch(launches);
    for (const MoeLaunch& launch : launches) steps_.push_back(std::make_unique<Step>(launch));
  }

  void run(const MoeArguments& arguments, void* stream) const override {
    check_arguments(problem_, arguments);
    if (steps_.empty()) return;
    const auto cuda_stream = static_cast<CUstream>(stream);
    const ContextGuard context(problem_.device);
    load(cuda_stream);  // all, before the first is launched
    const Workspace space = workspace(cuda_stream);
    for (const auto& step : steps_) {
      MoeParams params = step->launch.params;
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
      step->load(problem_.device, cuda_stream).launch(step->launch.shape, cuda_stream, &params);
    }
  }

  void prepare(void* stream) const override {
    if (steps_.empty()) return;
    const ContextGuard context(problem_.device);
    const RelaxedCapture relaxed;  // another thread may be capturing
    const auto cuda_stream = static_cast<CUstream>(stream);
    load(cuda_stream);
    workspace(cuda_stream);
  }

  const MoeProblem& problem() const override { return problem_; }

  std::string kernel_name() const override {
    std::string name;
    for (const auto& step : steps_) {
      const LaunchShape& shape = step->launch.shape;
      if (!name.empty()) name += ", ";
      name += fmt::format("{} {} x {} threads", to_string(step->launch.kernel),
                          uint64_t(shape.grid.x) * shape.grid.y, shape.block.x);
    }
    return name;
  }

  std::string kernel_source() const override {
    std::string source;
    for (const auto& step : steps_) source += step->source();
    return source;
  }

  size_t host_bytes() const override {
    return shared_bytes(*this) + heap_bytes(steps_) + steps_.size() * (sizeof(Step) + kBlockBytes);
  }

 private:
  void load(CUstream stream) const {
    for (const auto& step : steps_) step->load(problem_.device, stream);
  }

  Workspace workspace(CUstream stream) const {
    return stream_workspace(
        problem_.device, stream,
        {.counters = scratch_.counts != 0 ? sizeof(uint32_t) : 0,
         .partials = (scratch_.positions + scratch_.counts) * sizeof(uint32_t)});
  }

  const MoeProblem problem_;
  MoeScratch scratch_;
  std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace

std::shared_ptr<const MoePlan> make_gpu_plan(const MoeProblem& problem) {
  return std::make_shared<GpuPlan>(problem);
}

}  // namespace cleave
