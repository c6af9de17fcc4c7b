#include "plan/plans/parts_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/refuse.h"
#include "cleave/device.h"
#include "launch/conv_grid.h"
#include "problem/arguments.h"
#include "problem/conv.h"
#include "process/host_bytes.h"

namespace cleave {
namespace {

/// The parts follow each other on the stream, so one workspace serves them all.
class PartsPlan final : public ChosenPlan {
 public:
  explicit PartsPlan(std::vector<std::shared_ptr<const ChosenPlan>> parts) : parts_(std::move(parts)) {}

  void run(const GemmArguments& arguments, void* workspace, size_t workspace_bytes, void* stream) const override {
    for (const auto& part : parts_) part->run(arguments, workspace, workspace_bytes, stream);
  }
  void prepare(void* stream) const override {
    for (const auto& part : parts_) part->prepare(stream);
  }

  size_t workspace_size() const override {
    size_t most = 0;
    for (const auto& part : parts_) most = std::max(most, part->workspace_size());
    return most;
  }
  size_t host_bytes() const override {
    size_t bytes = shared_bytes(*this) + heap_bytes(parts_);
    for (const auto& part : parts_) bytes += part->host_bytes();
    return bytes;
  }

  size_t counter_size() const override { return first().counter_size(); }
  const GemmProblem& problem() const override { return first().problem(); }
  SplitKMode split_k_mode() const override { return first().split_k_mode(); }
  int32_t split_k_slices() const override { return first().split_k_slices(); }
  std::string kernel_name() const override { return first().kernel_name(); }
  std::vector<std::string> kernel_sources() const override {
    std::vector<std::string> sources;
    for (const auto& part : parts_) {
      for (std::string& source : part->kernel_sources()) {
        if (std::ranges::find(sources, source) == sources.end()) sources.push_back(std::move(source));
      }
    }
    return sources;
  }
  std::string why() const override { return first().why(); }
  std::vector<Candidate> candidates() const override { return first().candidates(); }
  double roofline_us() const override { return first().roofline_us(); }
  const Choice& choice() const override { return first().choice(); }

 private:
  const ChosenPlan& first() const { return *parts_.front(); }

  std::vector<std::shared_ptr<const ChosenPlan>> parts_;
};

/// A launch for each group of a convolution, all of one kernel. They, too, share a workspace.
class GroupsPlan final : public ChosenPlan {
 public:
  /// `all`: as of one launch, which it is not, and never runs.
  GroupsPlan(std::shared_ptr<const ChosenPlan> all, std::shared_ptr<const ChosenPlan> one)
      : all_(std::move(all)), one_(std::move(one)) {}

  void run(const GemmArguments& arguments, void* workspace, size_t workspace_bytes, void* stream) const override {
    check_arguments(problem(), arguments);
    for (int64_t group = 0; group < problem().batch; ++group)
      one_->run(group_of(problem(), arguments, group), workspace, workspace_bytes, stream);
  }
  void prepare(void* stream) const override { one_->prepare(stream); }

  size_t workspace_size() const override { return one_->workspace_size(); }
  size_t counter_size() const override { return one_->counter_size(); }
  size_t host_bytes() const override { return shared_bytes(*this) + all_->host_bytes() + one_->host_bytes(); }
  const GemmProblem& problem() const override { return all_->problem(); }
  SplitKMode split_k_mode() const override { return one_->split_k_mode(); }
  int32_t split_k_slices() const override { return one_->split_k_slices(); }
  std::string kernel_name() const override { return one_->kernel_name(); }
  std::vector<std::string> kernel_sources() const override { return one_->kernel_sources(); }
  std::string why() const override { return all_->why(); }
  std::vector<Candidate> candidates() const override { return all_->candidates(); }
  double roofline_us() const override { return all_->roofline_us(); }
  const Choice& choice() const override { return one_->choice(); }

 private:
  std::shared_ptr<const ChosenPlan> all_, one_;
};

std::shared_ptr<const GemmPlan> make_groups_plan(const GemmProblem& problem, const Choice& choice, std::string why) {
  why += fmt::format("; {} launches, one of each group", choice.parts);
  return std::make_shared<GroupsPlan>(make_gpu_plan(problem, choice, std::move(why)),
                                      make_gpu_plan(one_group(problem), choice, ""));
}

}  // namespace

std::shared_ptr<const GemmPlan> make_parts_plan(const GemmProblem& problem, const Choice& choice, std::string why) {
  if (choice.parts == 1) return make_gpu_plan(problem, choice, std::move(why));
  if (choice.spec.by_group) return make_groups_plan(problem, choice, std::move(why));
  std::vector<Choice> choices{choice};
  for (uint32_t part = 1; part < choice.parts; ++part) {
    auto other = make_choice(problem, device_info(problem.device), choice.spec, part);
    if (!other) {
      refuse(ErrorCode::unsupported,
             "part {} of the {} classes of pixels cannot be served as \"{}\"; pass smaller strides", part,
             count_classes(choice.problem.conv, false), to_string(choice.spec));
    }
    choices.push_back(*std::move(other));
  }
  // What is one part's counter must not be another's partial tile, which leaves it other than zero.
  size_t counters = 0;
  for (const Choice& part : choices) counters = std::max(counters, part.counter_bytes);
  why += fmt::format("; {} launches, each of up to {} classes of pixels", choice.parts, kMostClasses);
  std::vector<std::shared_ptr<const ChosenPlan>> parts;
  for (Choice& part : choices) {
    if (part.counter_bytes + part.partial_bytes > 0) part.counter_bytes = counters;
    parts.push_back(make_gpu_plan(problem, part, parts.empty() ? why : std::string()));
  }
  return std::make_shared<PartsPlan>(std::move(parts));
}

}  // namespace cleave
