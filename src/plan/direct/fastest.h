// The one that is predicted to take least, among the specs that a method is offered for a problem.
#pragma once

#include <limits>
#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

class FastestSpec {
 public:
  using Make = std::optional<Choice>(const GemmProblem&, const DeviceInfo&, const Spec&);
  using Predict = double(const Choice&, const DeviceInfo&);

  /// `make`, `predict`: the method's. What they are given has to outlive this.
  FastestSpec(const GemmProblem& problem, const DeviceInfo& device, Make* make, Predict* predict)
      : problem_(problem), device_(device), make_(make), predict_(predict) {}

  /// Passed over where the method does not serve it.
  void offer(const Spec& spec) {
    if (const std::optional<Choice> choice = make_(problem_, device_, spec)) offer(*choice);
  }
  void offer(const Choice& choice) {
    const double us = predict_(choice, device_);
    if (us < least_) best_ = choice.spec, least_ = us;
  }

  const std::optional<Spec>& spec() const { return best_; }

 private:
  const GemmProblem& problem_;
  const DeviceInfo& device_;
  Make* make_;
  Predict* predict_;
  std::optional<Spec> best_;
  double least_ = std::numeric_limits<double>::infinity();
};

}  // namespace cleave
