// Dense (batched) GEMM with split-K, of scaled 8-bit operands too:
//
//   D = activation(alpha * real(A) @ real(B) + beta * C + bias),   real(X) = scale * X
//
// where 8-bit D is stored as D * (1 / scale_d), rounded and saturated. Sums of int8 products are int32
// and exact up to K = 131071 (beyond, they wrap like any int32), except under scales of blocks.
//
//   cleave::GemmProblem problem{.m = 128, .n = 128, .k = 16384, ...};
//   auto plan = cleave::plan(problem);            // once; thread-safe, cached
//   plan->run({.a = a, .b = b, .d = d}, stream);  // many times; never waits or allocates
//
// GemmProblem and GemmArguments are in cleave/problem.h, the enumerations (DType, SplitKMode,
// Activation ...) in cleave/core/enums.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cleave/error.h"
#include "cleave/problem.h"

namespace cleave {

/// Every rule that `problem` breaks, each with the value seen and the remedy. Empty: it can be
/// planned.
CLEAVE_API std::vector<std::string> validate(const GemmProblem& problem);

/// Whether calls that say nothing of determinism (not this header's plan(), which does as its problem says) are
/// Determinism::batch_invariant where that is served: in the whole process, from CLEAVE_BATCH_INVARIANT=1 on, or from
/// set_batch_invariant().
CLEAVE_API bool batch_invariant();
CLEAVE_API void set_batch_invariant(bool promised);

/// One way to run a problem, with what the cost model expects of it.
struct Candidate {
  std::string kernel;  ///< readable name: family, tile, stages, cluster
  SplitKMode split_k_mode = SplitKMode::none;
  int32_t split_k_slices = 1;
  double predicted_us = 0;
  size_t workspace_size = 0;
};

/// An immutable, thread-safe way to run one problem on one device: what the plans of all operations
/// have. Each runs by a `run` of its own, which enqueues on `stream` (a CUstream / cudaStream_t; ignored by the CPU
/// backend, which returns when done), and never allocates, synchronises or compiles once `prepare` has run (first use
/// prepares by itself, outside capture).
class CLEAVE_API Plan {
 public:
  virtual ~Plan() = default;

  /// Compiles and loads the kernels, and allocates the pooled workspace of `stream`, if there is
  /// one: call it before capturing a CUDA graph.
  virtual void prepare(void* stream) const = 0;

  virtual std::string kernel_name() const = 0;  ///< of each launch; "cpu" on the CPU

  /// The translation units given to NVRTC, one for each kernel; none on the CPU.
  virtual std::vector<std::string> kernel_sources() const = 0;
  std::string kernel_source() const;  ///< all of them as one text

  /// Host memory that the plan keeps. The process keeps plans up to a bound, those used last: of
  /// products 24 MiB, of quantisation 4, of mixtures of experts 2.5, of their routers 1 and of adapters 0.5.
  virtual size_t host_bytes() const = 0;
};

/// The plan of a GEMM problem. host_bytes() is at most 4 KiB, and 512 bytes for each class of pixels of a strided
/// dgrad, whose number is rounded up to a power of two. Above 64 classes there are several launches, each with as much.
class CLEAVE_API GemmPlan : public Plan {
 public:
  /// `workspace`: at least workspace_size() bytes, 16-byte aligned, its first
  /// counter_size() bytes zero before its first use, and again before a use with a plan of another
  /// counter_size(), whose partial sums may have lain there (launches leave them zero); not shared
  /// by launches that may run at the same time; apart from everything that the launch reads or
  /// writes, or it is refused. The CPU backend refuses one that is not zeroed or in use; on a GPU,
  /// where only the kernel sees it, D is then wrong, and so may be what later launches make of the
  /// counters. nullptr: a pooled workspace of (device, stream) is used.
  virtual void run(const GemmArguments& arguments, void* workspace, size_t workspace_size, void* stream) const = 0;
  void run(const GemmArguments& arguments, void* stream) const { run(arguments, nullptr, 0, stream); }

  virtual size_t workspace_size() const = 0;  ///< exact, in bytes; 0 where the mode needs none
  virtual size_t counter_size() const = 0;    ///< leading bytes of the workspace that must start as zero

  virtual const GemmProblem& problem() const = 0;
  virtual SplitKMode split_k_mode() const = 0;  ///< what was chosen, never automatic
  virtual int32_t split_k_slices() const = 0;
  virtual std::string why() const = 0;  ///< one sentence: what was chosen, against what, and any note
  /// Every way that was considered, cheapest first; worked out anew by each call, as planning is.
  virtual std::vector<Candidate> candidates() const = 0;
  virtual double roofline_us() const = 0;  ///< max(bytes / bandwidth, operations / peak) on this device
};

/// The plan of `problem`, cached (see host_bytes). Throws Error with every broken rule. Works
/// without a GPU, driver or NVRTC when the problem's device is kCpu; for a CUDA ordinal without a GPU
/// it throws no_device.
CLEAVE_API std::shared_ptr<const GemmPlan> plan(const GemmProblem& problem);

}  // namespace cleave
