// cleave.GemmPlan: a plan and the problem that it was made for.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>

#include "launch.h"

namespace cleave::python {

class PlanObject {
 public:
  /// `options` say how to read the arrays of a call.
  PlanObject(const GemmProblem& problem, const GemmOptions& options,
             std::shared_ptr<const GemmPlan> plan)
      : problem_(problem), options_(options), plan_(std::move(plan)) {}
  PlanObject(PlanObject&& other) noexcept
      : problem_(other.problem_), options_(other.options_), plan_(std::move(other.plan_)) {}

  /// The arrays and scalars of one call; `launch_options` says where it runs.
  nanobind::object run(const GemmInputs& inputs, const LaunchOptions& launch_options) const;

  void prepare(nanobind::handle stream) const;

  const GemmPlan& plan() const { return *plan_; }
  const GemmProblem& problem() const { return problem_; }
  const GemmOptions& options() const { return options_; }

 private:
  GemmProblem problem_;
  GemmOptions options_;
  std::shared_ptr<const GemmPlan> plan_;
  mutable std::atomic<bool> warm_ = false;
};

}  // namespace cleave::python
