// cleave.GemmPlan: a plan and the problem that it was made for.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <variant>

#include "inputs/conv_operands.h"
#include "plans/launch.h"

namespace cleave::python {

/// How the arrays of a call are read.
using ReadOptions = std::variant<GemmOptions, ConvOptions>;

class PlanObject {
 public:
  /// `backward`: the epilogue function's own, which runs do without.
  PlanObject(const GemmProblem& problem, const ReadOptions& options, std::shared_ptr<const GemmPlan> plan,
             std::string backward = {})
      : problem_(problem), options_(options), plan_(std::move(plan)), backward_(std::move(backward)) {}

  /// The arrays and scalars of one call; `call` says where it runs.
  nanobind::object run(const GemmInputs& inputs, const CallArguments& call) const;

  /// The pointers of arrays that are of the planned form.
  GemmArguments read(const GemmInputs& inputs, TensorReader& reader) const;

  const GemmPlan& plan() const { return *plan_; }
  const GemmProblem& problem() const { return problem_; }
  const ReadOptions& options() const { return options_; }
  const std::string& backward() const { return backward_; }

 private:
  template <class Use>
  auto with_operands(const GemmInputs& inputs, TensorReader& reader, const Use& use) const;

  GemmProblem problem_;
  ReadOptions options_;
  std::shared_ptr<const GemmPlan> plan_;
  std::string backward_;
};

}  // namespace cleave::python
