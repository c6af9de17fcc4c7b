#include "plan/plans/parts_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/refuse.h"
#include "cleave/device.h"
#include "launch/conv_grid.h"
#include "plan/plans/delegating_plan.h"
#include "problem/arguments.h"
#include "problem/conv.h"
#include "process/host_bytes.h"

namespace cleave {
namespace {

/// The parts follow each other on the stream, so one workspace serves them all.
class PartsPlan final : public DelegatingPlan {
 public:
  explicit PartsPlan(std::vector<std::shared_ptr<const ChosenPlan>> parts)
      : DelegatingPlan(parts.front()), parts_(std::move(parts)) {}

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
  std::vector<std::string> kernel_sources() const override {
    std::vector<std::string> sources;
    for (const auto& part : parts_) {
      for (std::string& source : part->kernel_sources()) {
        if (std::ranges::find(sources, source) == sources.end()) sources.push_back(std::move(source));
      }
    }
    return sources;
  }

 private:
  std::vector<std::shared_ptr<const ChosenPlan>> parts_;
};

/// A launch for each group of a convolution, all of one kernel. They, too, share a workspace.
class GroupsPlan final : public DelegatingPlan {
 public:
  /// `all`: as of one launch, which it is not, and never runs.
  GroupsPlan(std::shared_ptr<const ChosenPlan> all, std::shared_ptr<const ChosenPlan> one)
      : DelegatingPlan(std::move(all)), one_(std::move(one)) {}

  void run(const GemmArguments& arguments, void* workspace, size_t workspace_bytes, void* stream) const override {
    check_arguments(problem(), arguments);
    for (int64_t group = 0; group < problem().batch; ++group)
      one_->run(group_of(problem(), arguments, group), workspace, workspace_bytes, stream);
  }
  void prepare(void* stream) const override { one_->prepare(stream); }
  size_t host_bytes() const override { return shared_bytes(*this) + shown().host_bytes() + one_->host_bytes(); }

 private:
  std::shared_ptr<const ChosenPlan> one_;
};

std::shared_ptr<const ChosenPlan> make_groups_plan(const GemmProblem& problem, const Choice& choice, std::string why) {
  why += fmt::format("; {} launches, one of each group", choice.parts);
  return std::make_shared<GroupsPlan>(make_gpu_plan(problem, choice, std::move(why)),
                                      make_gpu_plan(one_group(problem), choice, ""));
}

}  // namespace

std::shared_ptr<const ChosenPlan> make_parts_plan(const GemmProblem& problem, const Choice& choice, std::string why) {
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
