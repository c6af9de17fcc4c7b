// Kernels that run one after the other on a stream.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/enumerators.h"
#include "process/host_bytes.h"
#include "runtime/context.h"
#include "runtime/lazy_kernel.h"
#include "runtime/workspace_pool.h"

namespace cleave {

/// `Kernel` enumerates the kernels by name; translation_unit(kernel, config) is the text of one.
template <class Kernel, class Config, class Params>
struct KernelLaunch {
  Kernel kernel = {};
  Config config = {};
  Params params = {};  // but for the pointers
  LaunchShape shape = {};
};

/// Immutable, thread-safe.
template <class Launch>
class KernelSequence {
 public:
  /// `entry` is the entry point of every kernel, `workspace` what one run of all of them needs.
  KernelSequence(int device, const char* entry, std::vector<Launch> launches, const WorkspaceSize& workspace)
      : device_(device),
        entry_(entry),
        launches_(std::move(launches)),
        kernels_(launches_.size()),
        workspace_size_(workspace) {}

  /// Enqueues them. `fill(params, workspace)` adds the pointers.
  template <class Fill>
  void run(void* stream, const Fill& fill) const {
    if (launches_.empty()) return;
    const auto cuda_stream = static_cast<CUstream>(stream);
    const ContextGuard context(device_);
    load(cuda_stream);  // all, before the first is launched
    const Workspace space = workspace(cuda_stream);
    for (size_t i = 0; i < launches_.size(); ++i) {
      auto params = launches_[i].params;
      fill(params, space);
      kernel(i, cuda_stream).launch(launches_[i].shape, cuda_stream, &params);
    }
  }

  /// Compiles and loads the kernels, and allocates the workspace of `stream`.
  void prepare(void* stream) const {
    if (launches_.empty()) return;
    const ContextGuard context(device_);
    const RelaxedCapture relaxed;  // another thread may be capturing
    load(static_cast<CUstream>(stream));
    workspace(static_cast<CUstream>(stream));
  }

  /// "measure 32 x 256 threads, quantize_rows 32 x 256 threads"
  std::string name() const {
    std::string name;
    for (const Launch& launch : launches_) {
      const Dim3& grid = launch.shape.grid;
      if (!name.empty()) name += ", ";
      name += fmt::format("{} {} x {} threads", enumerator_name(launch.kernel), uint64_t(grid.x) * grid.y,
                          launch.shape.block.x);
    }
    return name;
  }

  /// The translation units.
  std::vector<std::string> sources() const {
    std::vector<std::string> sources;
    for (const Launch& launch : launches_) sources.push_back(translation_unit(launch.kernel, launch.config));
    return sources;
  }

  size_t heap_bytes() const { return cleave::heap_bytes(launches_) + cleave::heap_bytes(kernels_); }

 private:
  const Kernel& kernel(size_t i, CUstream stream) const {
    return kernels_[i].get(stream, [&] {
      const Launch& launch = launches_[i];
      return KernelRequest{std::string(enumerator_name(launch.kernel)),
                           translation_unit(launch.kernel, launch.config),
                           entry_,
                           device_,
                           {launch.shape.dynamic_shared_bytes}};
    });
  }

  void load(CUstream stream) const {
    for (size_t i = 0; i < kernels_.size(); ++i) kernel(i, stream);
  }

  Workspace workspace(CUstream stream) const { return pooled_workspace(device_, stream, workspace_size_); }

  const int device_;
  const char* const entry_;
  const std::vector<Launch> launches_;
  const std::vector<LazyKernel> kernels_;
  const WorkspaceSize workspace_size_;
};

/// A plan that is a sequence, which `fill(params, arguments, workspace)` gives the pointers.
template <class Plan, class Problem, class Arguments, class Launch, class Fill>
class SequencePlan final : public Plan {
 public:
  SequencePlan(const Problem& problem, const char* entry, std::vector<Launch> launches, const WorkspaceSize& workspace,
               const Fill& fill)
      : problem_(problem), kernels_(problem.device, entry, std::move(launches), workspace), fill_(fill) {}

  void run(const Arguments& arguments, void* stream) const override {
    check_arguments(problem_, arguments);
    kernels_.run(stream, [&](auto& params, const Workspace& space) { fill_(params, arguments, space); });
  }

  void prepare(void* stream) const override { kernels_.prepare(stream); }
  const Problem& problem() const override { return problem_; }
  std::string kernel_name() const override { return kernels_.name(); }
  std::vector<std::string> kernel_sources() const override { return kernels_.sources(); }
  size_t host_bytes() const override { return shared_bytes(*this) + kernels_.heap_bytes(); }

 private:
  const Problem problem_;
  const KernelSequence<Launch> kernels_;
  const Fill fill_;
};

template <class Plan, class Arguments, class Problem, class Launch, class Fill>
std::shared_ptr<const Plan> make_sequence_plan(const Problem& problem, const char* entry, std::vector<Launch> launches,
                                               const WorkspaceSize& workspace, const Fill& fill) {
  return std::make_shared<SequencePlan<Plan, Problem, Arguments, Launch, Fill>>(problem, entry, std::move(launches),
                                                                                workspace, fill);
}

}  // namespace cleave
