// The specs that are weighed for one problem.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "plan/choice/choice.h"
#include "plan/cost/cost.h"

namespace cleave {

/// What is considered, by specs and rough predictions: choices are large. The portable kernel is for what the Hopper
/// kernel cannot serve in one launch.
class Considered {
 public:
  /// If it serves the problem.
  void add(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

  /// Those of the product whose D another kernel quantises, in `us`.
  void add_apart(const Considered& products, bool halves, double us);

  size_t count() const { return list_.size(); }

  /// They were those of the product that a convolution is, and are to serve the convolution.
  void serve_convolution() {
    for (Rough& each : list_) each.spec.product = true;
  }

  /// Calls visit(choice), with a close prediction, of each whose rough one is at most `far` times the least.
  template <class Visit>
  void visit_near(double far, const GemmProblem& problem, const DeviceInfo& device, const Visit& visit) const {
    double least = std::numeric_limits<double>::infinity();
    for (const Rough& each : list_) least = std::min(least, each.us);
    for (const Rough& each : list_) {
      if (each.us > far * least) continue;
      std::optional<Choice> choice = make_choice(problem, device, each.spec);
      choice->predicted_us = predict_us(*choice, device);
      visit(std::move(*choice));
    }
  }

 private:
  struct Rough {
    Spec spec;
    double us;
  };

  void add(const Spec& spec, double rough_us);

  std::vector<Rough> list_;
  bool has_hopper_ = false;
};

}  // namespace cleave
