// What a plan for a GPU does beside its product where an epilogue function reduces D (launch/reductions.h): a second
// kernel joins partial results in the workspace.
#pragma once

#include "launch/reductions.h"
#include "plan/choice/choice.h"
#include "plan/plans/reduce_kernel.h"

namespace cleave {

/// The partial results that a choice leaves: none, if its function does not reduce D.
Joins joins_of(const Choice& choice);

/// Immutable, thread-safe.
class Reductions {
 public:
  /// The choice leaves partial results.
  explicit Reductions(const Choice& choice);

  const Joins& joins() const { return joins_; }

  /// Enqueues the second kernel, after the product's. `partials`: as given to `joins().point`.
  void launch(const void* partials, const GemmArguments& arguments, CUstream stream) const;

  const ReduceKernel& kernel() const { return kernel_; }

 private:
  Joins joins_;
  ReduceKernel kernel_;
};

}  // namespace cleave
