#include "plan/plans/two_heights.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>
#include <vector>

#include "base/refuse.h"
#include "cleave/device.h"
#include "launch/two_heights.h"
#include "plan/cost/cost.h"
#include "plan/plans/delegating_plan.h"
#include "problem/arguments.h"
#include "problem/problem.h"
#include "process/host_bytes.h"

namespace cleave {
namespace {

bool can_be_parted(const GemmProblem& p) {
  const bool plain = p.epilogue.function == nullptr || activation_of(p) != Activation::none;
  return p.weights_b.format != WeightFormat::none && p.batch == 1 && p.groups.dimension == Grouping::none && plain &&
         !is_gated(p) && !p.has_amax && !finds_scales(p) && !is_batch_invariant(p) &&
         p.kernel != KernelFamily::streamed && p.split_k_mode == SplitKMode::automatic && p.split_k_slices == 0;
}

/// The fastest that needs no workspace.
std::optional<Choice> fastest(const GemmProblem& problem, const DeviceInfo& device) {
  for (Choice& choice : candidates(problem, device)) {
    if (choice.workspace_bytes() == 0) return std::move(choice);
  }
  return std::nullopt;
}

class TwoHeightsPlan final : public DelegatingPlan {
 public:
  /// `best`: in one launch, which never runs.
  TwoHeightsPlan(const TwoHeights& heights, std::shared_ptr<const ChosenPlan> best)
      : DelegatingPlan(std::move(best)),
        tall_(make_gpu_plan(part_of(heights.whole, heights.tall.problem.m), heights.tall, "")),
        rest_(make_gpu_plan(part_of(heights.whole, heights.rest.problem.m), heights.rest, "")) {}

  void run(const GemmArguments& arguments, void* workspace, size_t workspace_bytes, void* stream) const override {
    check_arguments(problem(), arguments);
    if (!is_ready_.load(std::memory_order_acquire)) prepare(stream);  // both, before the first is launched
    tall_->run(arguments, workspace, workspace_bytes, stream);
    rest_->run(arguments_behind(problem(), tall_->problem().n, arguments), workspace, workspace_bytes, stream);
  }
  void prepare(void* stream) const override {
    tall_->prepare(stream);
    rest_->prepare(stream);
    is_ready_.store(true, std::memory_order_release);
  }

  size_t workspace_size() const override { return 0; }
  size_t counter_size() const override { return 0; }
  size_t host_bytes() const override {
    return shared_bytes(*this) + shown().host_bytes() + tall_->host_bytes() + rest_->host_bytes();
  }
  SplitKMode split_k_mode() const override { return SplitKMode::none; }
  int32_t split_k_slices() const override { return 1; }
  std::string kernel_name() const override { return fmt::format("{}, {}", tall_->kernel_name(), rest_->kernel_name()); }
  std::vector<std::string> kernel_sources() const override {
    std::vector<std::string> sources = tall_->kernel_sources();
    for (std::string& source : rest_->kernel_sources()) {
      if (source != sources.front()) sources.push_back(std::move(source));
    }
    return sources;
  }
  Heights heights() const { return {&tall_->choice(), &rest_->choice()}; }

 private:
  std::shared_ptr<const ChosenPlan> tall_, rest_;
  mutable std::atomic<bool> is_ready_{false};
};

}  // namespace

std::optional<TwoHeights> find_two_heights(const GemmProblem& problem, const DeviceInfo& device, const Choice& best) {
  if (!can_be_parted(problem)) return std::nullopt;
  std::optional<TwoHeights> found;
  double least = best.predicted_us;
  for (const uint32_t height : {256u, 192u, 128u}) {
    Spec spec{.transposed = true, .tile_m = height, .tile_n = 128};
    const int64_t rows = rows_of_whole_waves(problem, height, spec.tile_n, uint32_t(device.num_sms));
    if (rows == 0) continue;
    auto tall = make_choice(part_of(problem, rows), device, spec);
    if (!tall) continue;
    tall->predicted_us = predict_us(*tall, device);
    if (tall->predicted_us >= least) continue;
    auto rest = fastest(part_of(problem, problem.n - rows), device);
    if (!rest || tall->predicted_us + rest->predicted_us >= least) continue;
    least = tall->predicted_us + rest->predicted_us;
    found = {problem, *std::move(tall), *std::move(rest)};
  }
  return found;
}

Heights heights_of(const GemmPlan& plan) {
  const auto* const parted = dynamic_cast<const TwoHeightsPlan*>(&plan);
  return parted == nullptr ? Heights() : parted->heights();
}

std::shared_ptr<const ChosenPlan> make_two_heights_plan(const TwoHeights& heights, const Choice& best,
                                                        std::string why) {
  why += fmt::format("; in two launches {:.1f} us, {} for {} rows of the weight and {} for the others",
                     heights.predicted_us(), to_string(heights.tall.spec), heights.tall.problem.m,
                     to_string(heights.rest.spec));
  return std::make_shared<TwoHeightsPlan>(heights, make_gpu_plan(heights.whole, best, std::move(why)));
}

}  // namespace cleave
