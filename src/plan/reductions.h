// What a plan for a GPU does beside its product where an epilogue function reduces D: partial results in the workspace,
// and a second kernel that joins them. Where tiles have whole lines, their results are no partial ones.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/reduce/reduce_params.h"
#include "plan/choice.h"
#include "runtime/lazy_kernel.h"

namespace cleave {

/// Whether a choice leaves partial results.
bool joins_partials(const Choice& choice);

/// Bytes of a choice's partial results: of its workspace.
size_t reduction_bytes(const Choice& choice);

/// Immutable, thread-safe.
class Reductions {
 public:
  /// The choice leaves partial results.
  explicit Reductions(const Choice& choice);

  /// Where the product's kernel finds room for partial results, but for the pointers.
  void place(GemmParams& params) const;
  /// And these.
  void point(void* partials, GemmParams& params) const;

  /// Enqueues the second kernel, after the product's. `partials`: as given to `point`.
  void launch(const void* partials, const GemmArguments& arguments, CUstream stream) const;

  /// Compiles and loads it.
  const Kernel& kernel(CUstream stream) const;
  std::string source() const;

 private:
  struct Output {
    uint32_t number;  // among the function's beside D
    size_t first;     // element of the partial results
    int64_t unit_stride;
  };

  int device_;
  ReduceConfig config_;
  ReduceParams params_;
  LaunchShape shape_;
  uint32_t count_ = 0;
  Output outputs_[kMostEpilogueOutputs] = {};
  LazyKernel kernel_;
};

}  // namespace cleave
