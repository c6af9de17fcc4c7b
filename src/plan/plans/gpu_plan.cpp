#include "plan/plans/gpu_plan.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/refuse.h"
#include "cleave/config/clusters.h"
#include "cleave/config/dependent_launch.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/group.h"
#include "cleave/names.h"
#include "jit/source.h"
#include "launch/gemm_grid.h"
#include "launch/product_params.h"
#include "plan/catalogue/candidates.h"
#include "plan/cost/cost.h"
#include "plan/plans/kernel_params.h"
#include "plan/plans/quantize_apart.h"
#include "plan/plans/reductions.h"
#include "problem/arguments.h"
#include "problem/problem.h"
#include "process/fork.h"
#include "process/host_bytes.h"
#include "runtime/context.h"
#include "runtime/lazy_kernel.h"
#include "runtime/loaded_kernels.h"
#include "runtime/module.h"
#include "runtime/workspace_pool.h"

namespace cleave {
namespace {

class GpuPlan final : public ChosenPlan {
 public:
  GpuPlan(const GemmProblem& problem, const Choice& choice, std::string why)
      : choice_(choice),
        read_otherwise_(problem == choice_.problem ? nullptr : std::make_unique<const GemmProblem>(problem)),
        problem_(read_otherwise_ ? *read_otherwise_ : choice_.problem),
        why_(std::move(why)) {
    const GemmConfig& c = choice_.config;
    launch_.grid = {choice_.blocks, 1, 1};
    launch_.block = {cta_threads(c), 1, 1};
    launch_.cluster = cluster_size(c);
    launch_.cooperative = ctas_wait(c);
    launch_.loads_early = has_static_operand(c);
    launch_.dynamic_shared_bytes = smem_plan(c).bytes;
    if (choice_.spec.apart) quantization_ = plan(quantization_of(problem_, choice_.spec.halves));
    if (joins_of(choice_).any()) reductions_ = std::make_unique<const Reductions>(choice_);
  }

  void run(const GemmArguments& given, void* workspace, size_t workspace_bytes, void* stream) const override {
    check_arguments(problem_, given);
    const auto cuda_stream = static_cast<CUstream>(stream);
    if (choice_.blocks == 0) {  // D is empty
      if (reductions_ == nullptr) return;
      const ContextGuard context(problem_.device);
      return reductions_->launch(nullptr, given, cuda_stream);
    }
    const ContextGuard context(problem_.device);
    const Ready& ready = make_ready(cuda_stream);

    GemmArguments arguments = choice_.spec.transposed ? transposed(given) : given;
    alignas(TensorMap) std::byte buffer[kMostParamBytes];
    std::memcpy(buffer, ready.params.data(), ready.params.size());
    GemmParams& params = *reinterpret_cast<GemmParams*>(buffer);
    if (workspace != nullptr) check_workspace_apart(problem_, given, workspace, workspace_size());
    const Workspace space = find_workspace(workspace, workspace_bytes, cuda_stream);
    if (quantization_ != nullptr) arguments.d = unquantized_d(space);
    set_arguments(choice_.config, arguments, params);
    if (choice_.config.across.ranks > 1) static_cast<AcrossParams&>(params).meeting = given.group->meeting(given.call);
    params.counters = static_cast<uint32_t*>(space.counters);
    params.partials = static_cast<float*>(space.partials);
    if (choice_.map_bytes > 0) params.group_maps = first_map(space);
    place_maps(choice_, buffer, params);
    if (reductions_ != nullptr) reductions_->joins().point(first_partial_result(space), params);
    ready.kernel->launch(launch_, cuda_stream, buffer);
    if (reductions_ != nullptr) reductions_->launch(first_partial_result(space), given, cuda_stream);
    if (quantization_ != nullptr) {
      quantization_->run({.x = arguments.d, .q = given.d, .scale = given.scale_out}, stream);
    }
  }

  void prepare(void* stream) const override {
    if (choice_.blocks == 0 && reductions_ == nullptr) return;
    const ContextGuard context(problem_.device);
    const RelaxedCapture relaxed;  // another thread may be capturing
    if (reductions_ != nullptr) reductions_->kernel().prepare(static_cast<CUstream>(stream));
    if (choice_.blocks == 0) return;
    make_ready(static_cast<CUstream>(stream));
    if (quantization_ != nullptr) quantization_->prepare(stream);
    pooled_workspace(problem_.device, static_cast<CUstream>(stream), space_needed());
  }

  size_t workspace_size() const override { return choice_.workspace_bytes(); }
  size_t counter_size() const override { return choice_.counter_bytes; }
  const GemmProblem& problem() const override { return problem_; }
  SplitKMode split_k_mode() const override { return choice_.spec.split; }
  int32_t split_k_slices() const override { return int32_t(choice_.spec.slices); }
  std::string kernel_name() const override { return to_string(choice_.spec); }
  std::vector<std::string> kernel_sources() const override {
    std::vector<std::string> sources{gemm_source(choice_.config)};
    if (reductions_ != nullptr) sources.push_back(reductions_->kernel().source());
    if (quantization_ != nullptr) sources.push_back(quantization_->kernel_source());
    return sources;
  }
  std::string why() const override { return why_; }
  double roofline_us() const override {
    return cleave::roofline_us(as_expected(problem_), device_info(problem_.device));
  }

  std::vector<Candidate> candidates() const override {
    if (choice_.blocks == 0) return {};
    std::vector<Choice> considered = cleave::candidates(problem_, device_info(problem_.device));
    // A measurement may have had candidates that the model does not consider.
    const auto same = [&](const Choice& c) { return c.spec == choice_.spec; };
    if (std::none_of(considered.begin(), considered.end(), same)) {
      Choice own = choice_;
      const auto likely = make_choice(as_expected(problem_), device_info(problem_.device), own.spec);
      own.predicted_us = predict_us(likely ? *likely : own, device_info(problem_.device));
      const auto slower = [&](const Choice& c) { return c.predicted_us > own.predicted_us; };
      considered.insert(std::find_if(considered.begin(), considered.end(), slower), own);
    }
    std::vector<Candidate> list;
    for (const Choice& c : considered) {
      list.push_back({to_string(c.spec), c.spec.split, int32_t(c.spec.slices), c.predicted_us, c.workspace_bytes()});
    }
    return list;
  }

  size_t host_bytes() const override {
    const size_t params = choice_.blocks == 0 ? 0 : most_params_bytes(choice_) + kBlockBytes;
    const size_t reductions = reductions_ == nullptr ? 0 : sizeof(Reductions) + kBlockBytes;
    const size_t problem = read_otherwise_ == nullptr ? 0 : sizeof(GemmProblem) + kBlockBytes;
    return shared_bytes(*this) + heap_bytes(why_) + params + reductions + problem;
  }

  const Choice& choice() const override { return choice_; }

 private:
  /// What needs the GPU, made at the first use.
  struct Ready {
    const Kernel* kernel = nullptr;
    std::vector<std::byte> params;
  };

  KernelRequest request() const {
    const GemmConfig& c = choice_.config;
    return {
        to_string(choice_.spec), gemm_source(c), gemm_entry, problem_.device, {smem_plan(c).bytes, cluster_size(c)}};
  }

  WorkspaceSize space_needed() const {
    return {choice_.counter_bytes, choice_.workspace_bytes() - choice_.counter_bytes};
  }

  char* first_partial_result(const Workspace& space) const {
    return static_cast<char*>(space.partials) + choice_.partial_bytes + choice_.map_bytes;
  }

  void* unquantized_d(const Workspace& space) const {
    const auto at = reinterpret_cast<uintptr_t>(first_partial_result(space)) + choice_.reduction_bytes;
    return reinterpret_cast<void*>(round_up<uintptr_t>(at, 16));
  }

  TensorMap* first_map(const Workspace& space) const {
    const auto at = reinterpret_cast<uintptr_t>(space.partials) + choice_.partial_bytes;
    return reinterpret_cast<TensorMap*>(round_up<uintptr_t>(at, alignof(TensorMap)));
  }

  Workspace find_workspace(void* given, size_t given_bytes, CUstream stream) const {
    if (workspace_size() == 0) return {};
    if (given == nullptr && given_bytes == 0) return pooled_workspace(problem_.device, stream, space_needed());
    check_workspace(given, given_bytes, workspace_size());
    return {given, static_cast<char*>(given) + choice_.counter_bytes};
  }

  const Ready& make_ready(CUstream stream) const {
    if (const Ready* ready = ready_.load(std::memory_order_acquire)) return *ready;
    const std::lock_guard lock(mutex_);
    if (const Ready* ready = ready_.load(std::memory_order_acquire)) return *ready;
    storage_.kernel = &find_kernel(stream);
    check_resident(*storage_.kernel);
    storage_.params = make_params(choice_, reductions_ == nullptr ? nullptr : &reductions_->joins());
    ready_.store(&storage_, std::memory_order_release);
    return storage_;
  }

  const Kernel& find_kernel(CUstream stream) const {
    if (const Kernel* loaded = find_loaded(choice_.config, problem_.device)) return *loaded;
    const Kernel& kernel = kernel_.get(stream, [this] { return request(); });
    add_loaded(choice_.config, problem_.device, kernel);
    return kernel;
  }

  /// CTAs that wait for each other would wait for ever if some could not start (a GPU shared
  /// through MPS, say).
  void check_resident(const Kernel& kernel) const {
    const GemmConfig& c = choice_.config;
    if (!ctas_wait(c)) return;
    const int most = kernel.max_active_clusters(launch_);
    const int needed = int(choice_.blocks / cluster_size(c));
    if (needed > most) {
      refuse(ErrorCode::unsupported,
             "split_k_mode=\"{}\" needs {} CTAs running at once, but this context has room for {}; use "
             "split_k_mode=\"parallel\"",
             to_string(c.schedule.split), needed * int(cluster_size(c)), most * int(cluster_size(c)));
    }
  }

  Choice choice_;
  std::unique_ptr<const GemmProblem> read_otherwise_;  // the choice has it transposed, say
  const GemmProblem& problem_;                         // as it was asked for
  std::string why_;
  std::unique_ptr<const Reductions> reductions_;      // of a function that reduces D, where tiles leave parts
  std::shared_ptr<const QuantizePlan> quantization_;  // of D, where it is done apart
  LazyKernel kernel_;
  LaunchShape launch_{.programmatic = true};
  mutable ForkMutex mutex_;
  mutable Ready storage_;
  mutable std::atomic<const Ready*> ready_{nullptr};
};

}  // namespace

std::shared_ptr<const ChosenPlan> make_gpu_plan(const GemmProblem& problem, const Choice& choice, std::string why) {
  return std::make_shared<GpuPlan>(problem, choice, std::move(why));
}

const Choice* choice_of(const GemmPlan& plan) {
  const auto* chosen = dynamic_cast<const ChosenPlan*>(&plan);
  return chosen == nullptr ? nullptr : &chosen->choice();
}

}  // namespace cleave
