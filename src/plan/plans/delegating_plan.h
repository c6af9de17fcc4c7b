// A plan that runs by other plans, and says of itself what one of them says: whoever derives writes what differs.
#pragma once

#include <utility>

#include "plan/plans/gpu_plan.h"

namespace cleave {

class DelegatingPlan : public ChosenPlan {
 public:
  size_t workspace_size() const override { return shown_->workspace_size(); }
  size_t counter_size() const override { return shown_->counter_size(); }
  const GemmProblem& problem() const override { return shown_->problem(); }
  SplitKMode split_k_mode() const override { return shown_->split_k_mode(); }
  int32_t split_k_slices() const override { return shown_->split_k_slices(); }
  std::string kernel_name() const override { return shown_->kernel_name(); }
  std::vector<std::string> kernel_sources() const override { return shown_->kernel_sources(); }
  std::string why() const override { return shown_->why(); }
  std::vector<Candidate> candidates() const override { return shown_->candidates(); }
  double roofline_us() const override { return shown_->roofline_us(); }
  const Choice& choice() const override { return shown_->choice(); }

 protected:
  explicit DelegatingPlan(std::shared_ptr<const ChosenPlan> shown) : shown_(std::move(shown)) {}

  const ChosenPlan& shown() const { return *shown_; }

 private:
  std::shared_ptr<const ChosenPlan> shown_;
};

}  // namespace cleave
