#include "plan/two_heights.h"

#include <fmt/format.h>

#include <atomic>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/refuse.h"
#include "cleave/device.h"
#include "plan/cost/cost.h"
#include "problem/arguments.h"
#include "problem/placement.h"
#include "problem/problem.h"
#include "process/host_bytes.h"

namespace cleave {
namespace {

/// With more waves, the last one's share is small.
constexpr uint32_t kMostWaves = 6;

bool can_be_parted(const GemmProblem& p) {
  const bool plain = p.epilogue.function == nullptr || activation_of(p) != Activation::none;
  return p.weights_b.format != WeightFormat::none && p.batch == 1 && p.groups.dimension == Grouping::none && plain &&
         !is_gated(p) && !p.has_amax && !finds_scales(p) && !is_batch_invariant(p) &&
         p.kernel != KernelFamily::streamed && p.split_k_mode == SplitKMode::automatic && p.split_k_slices == 0;
}

/// The problem with `rows` of the weight's rows.
GemmProblem part_of(const GemmProblem& whole, int64_t rows) {
  GemmProblem part = whole;
  part.n = rows;
  return part;
}

/// The fastest that needs no workspace.
std::optional<Choice> fastest(const GemmProblem& problem, const DeviceInfo& device) {
  for (Choice& choice : candidates(problem, device)) {
    if (choice.workspace_bytes() == 0) return std::move(choice);
  }
  return std::nullopt;
}

/// The arguments of the part that begins with row `first` of the weight, where `before` is the part ahead of it.
GemmArguments arguments_of_rest(const GemmProblem& whole, const GemmProblem& before, const GemmArguments& all) {
  GemmArguments own = all;
  const auto move = [](auto*& data, int64_t bytes) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<std::remove_reference_t<decltype(data)>>>,
                                    const char, char>;
    using Pointer = std::remove_reference_t<decltype(data)>;
    if (data != nullptr) data = reinterpret_cast<Pointer>(reinterpret_cast<Byte*>(data) + bytes);
  };
  const int64_t rows = before.n;
  const auto column_bytes = [&](const Placement& matrix) {
    return rows * matrix.layout.stride_col * int64_t(size_of(matrix.layout.dtype));
  };
  move(own.b, b_of(before).columns);
  move(own.c, column_bytes(c_of(whole)));
  move(own.d, column_bytes(d_of(whole)));
  if (whole.bias == Bias::row) move(own.bias, column_bytes(bias_of(whole)));
  if (whole.scale_b.kind == Scaling::vector) move(own.scale_b, rows * int64_t(sizeof(float)));
  move(own.weight_scale, column_bytes(weight_scale_of(whole)));
  move(own.weight_zero, column_bytes(weight_zero_of(whole)));
  return own;
}

class TwoHeightsPlan final : public ChosenPlan {
 public:
  TwoHeightsPlan(const TwoHeights& heights, std::shared_ptr<const ChosenPlan> best)
      : best_(std::move(best)),
        tall_(make_gpu_plan(part_of(heights.whole, heights.tall.problem.m), heights.tall, "")),
        rest_(make_gpu_plan(part_of(heights.whole, heights.rest.problem.m), heights.rest, "")) {}

  void run(const GemmArguments& arguments, void* workspace, size_t workspace_bytes, void* stream) const override {
    check_arguments(problem(), arguments);
    if (!is_ready_.load(std::memory_order_acquire)) prepare(stream);  // both, before the first is launched
    tall_->run(arguments, workspace, workspace_bytes, stream);
    rest_->run(arguments_of_rest(problem(), tall_->problem(), arguments), workspace, workspace_bytes, stream);
  }
  void prepare(void* stream) const override {
    tall_->prepare(stream);
    rest_->prepare(stream);
    is_ready_.store(true, std::memory_order_release);
  }

  size_t workspace_size() const override { return 0; }
  size_t counter_size() const override { return 0; }
  size_t host_bytes() const override {
    return shared_bytes(*this) + best_->host_bytes() + tall_->host_bytes() + rest_->host_bytes();
  }
  const GemmProblem& problem() const override { return best_->problem(); }
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
  std::string why() const override { return best_->why(); }
  std::vector<Candidate> candidates() const override { return best_->candidates(); }
  double roofline_us() const override { return best_->roofline_us(); }
  const Choice& choice() const override { return best_->choice(); }

 private:
  std::shared_ptr<const ChosenPlan> best_;  // in one launch, which never runs
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
    const auto whole = make_choice(problem, device, spec);
    if (!whole) continue;
    const auto in_wave = uint32_t(device.num_sms), waves = uint32_t(whole->tiles) / in_wave;
    const int64_t columns = ceil_div(problem.m, int64_t(spec.tile_n));
    const int64_t rows = waves * in_wave / columns * height;
    if (waves == 0 || waves > kMostWaves || rows == 0 || rows >= problem.n) continue;
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

std::shared_ptr<const GemmPlan> make_two_heights_plan(const TwoHeights& heights, const Choice& best, std::string why) {
  why += fmt::format("; in two launches {:.1f} us, {} for {} rows of the weight and {} for the others",
                     heights.predicted_us(), to_string(heights.tall.spec), heights.tall.problem.m,
                     to_string(heights.rest.spec));
  return std::make_shared<TwoHeightsPlan>(heights, make_gpu_plan(heights.whole, best, std::move(why)));
}

}  // namespace cleave
