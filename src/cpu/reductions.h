// Reductions of D by an epilogue function, on the host: what is reduced is stored as a matrix first, so that their
// order follows from D's shape alone.
#pragma once

#include <memory>

#include "cleave/gemm.h"

namespace cleave::cpu {

/// A run whose reduced outputs are matrices in memory of its own.
class Reductions {
 public:
  Reductions(const GemmProblem& problem, const GemmArguments& arguments);

  const GemmProblem& staged_problem() const { return staged_problem_; }
  const GemmArguments& staged_arguments() const { return staged_arguments_; }

  /// Once they are written: writes what they are reduced to, sums of float64 rounded to float32. What belongs to no
  /// group stays as it is, or becomes zero.
  void finish() const;

 private:
  void reduce(uint32_t output) const;

  const GemmProblem& problem_;
  const GemmArguments& arguments_;
  GemmProblem staged_problem_;
  GemmArguments staged_arguments_;
  std::unique_ptr<float[]> values_[kMostEpilogueOutputs];
};

}  // namespace cleave::cpu
