// The kernel that adds up partial results of a D that an epilogue function reduces (kernels/cleave/reduce).
#pragma once

#include <string>

#include "cleave/reduce/reduce_params.h"
#include "runtime/lazy_kernel.h"

namespace cleave {

/// The name of its entry point.
inline constexpr const char* reduce_entry = "cleave_reduce";

/// What NVRTC compiles.
std::string reduce_source(const ReduceConfig& config);

/// Immutable, thread-safe.
class ReduceKernel {
 public:
  ReduceKernel(const ReduceConfig& config, int device) : config_(config), device_(device) {}

  /// Enqueues it behind the product's: `blocks` CTAs for each of `outputs`.
  void launch(uint32_t blocks, uint32_t outputs, ReduceParams params, CUstream stream) const;

  /// Compiles and loads it.
  const Kernel& prepare(CUstream stream) const;
  std::string source() const { return reduce_source(config_); }

 private:
  ReduceConfig config_;
  int device_;
  LazyKernel kernel_;
};

}  // namespace cleave
