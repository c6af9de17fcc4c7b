// What a plan for a GPU does beside its product where an epilogue function reduces D (launch/reductions.h): a second
// kernel joins partial results in the workspace.
#pragma once

#include "launch/reductions.h"
#include "plan/choice/choice.h"
#include "runtime/lazy_kernel.h"

namespace cleave {

/// The name of the second kernel's entry point.
inline constexpr const char* reduce_entry = "cleave_reduce";

/// What NVRTC compiles.
std::string reduce_source(const ReduceConfig& config);

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

  /// Compiles and loads it.
  const Kernel& kernel(CUstream stream) const;
  std::string source() const { return reduce_source(config_); }

 private:
  int device_;
  ReduceConfig config_;
  Joins joins_;
  LaunchShape shape_;
  LazyKernel kernel_;
};

}  // namespace cleave
