#include "quantize/gpu_plan.h"

#include <fmt/format.h>

#include <vector>

#include "cleave/device.h"
#include "process/host_bytes.h"
#include "quantize/arguments.h"
#include "quantize/launches.h"
#include "runtime/context.h"
#include "runtime/lazy_kernel.h"
#include "runtime/stream_workspace.h"

namespace cleave {
namespace {

/// Of the kernel that measures: see QuantizeParams::counters.
constexpr size_t kCounterSize = 3 * sizeof(uint32_t);

struct Step {
  explicit Step(const QuantizeLaunch& launch) : launch(launch) {}

  std::string source() const { return quantize_source(launch.kernel, launch.config); }

  const Kernel& load(int device, CUstream stream) const {
    return kernel.get(stream, [&] {
      return KernelRequest{to_string(launch.kernel), source(), quantize_entry, device};
    });
  }

  LaunchShape shape() const {
    return {.grid = {launch.blocks, 1, 1}, .block = {launch.threads, 1, 1}, .programmatic = true};
  }

  const QuantizeLaunch launch;
  const LazyKernel kernel;
};

class GpuPlan final : public QuantizePlan {
 public:
  explicit GpuPlan(const QuantizeProblem& problem) : problem_(problem) {
    for (const QuantizeLaunch& launch : quantize_launches(problem, device_info(problem.device)))
      steps_.push_back(std::make_unique<Step>(launch));
    if (steps_.empty()) return;
    const QuantizeLaunch& first = steps_.front()->launch;
    if (first.kernel == QuantizeKernel::measure) workspace_size_.counters = kCounterSize;
    workspace_size_.partials = first.params.bands * sizeof(Band);
  }

  void run(const QuantizeArguments& arguments, void* stream) const override {
    check_arguments(problem_, arguments);
    if (steps_.empty()) return;
    const auto cuda_stream = static_cast<CUstream>(stream);
    const ContextGuard context(problem_.device);
    load(cuda_stream);  // all, before the first is launched
    const Workspace space = workspace(cuda_stream);
    for (const auto& step : steps_) {
      QuantizeParams params = step->launch.params;
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
      step->load(problem_.device, cuda_stream).launch(step->shape(), cuda_stream, &params);
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

  const QuantizeProblem& problem() const override { return problem_; }

  std::string kernel_name() const override {
    std::string name;
    for (const auto& step : steps_) {
      const QuantizeLaunch& launch = step->launch;
      if (!name.empty()) name += ", ";
      name += fmt::format("{} {} x {} threads", to_string(launch.kernel), launch.blocks,
                          launch.threads);
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
    return stream_workspace(problem_.device, stream, workspace_size_);
  }

  const QuantizeProblem problem_;
  WorkspaceSize workspace_size_;
  std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace

std::shared_ptr<const QuantizePlan> make_gpu_plan(const QuantizeProblem& problem) {
  return std::make_shared<GpuPlan>(problem);
}

}  // namespace cleave
