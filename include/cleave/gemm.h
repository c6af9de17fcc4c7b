// Dense and batched GEMM with split-K, for scaled 8-bit operands as well:
//
//   D = function(alpha * real(A) @ real(B) + beta * C + bias),   real(X) = scale * X
//
// An 8-bit D is stored as D * (1 / scale_d), rounded and saturated. int8 products are accumulated in int32, exactly up
// to K = 131071; beyond that sums wrap, except under block scales.
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

/// Every rule that `problem` breaks, each with the value seen and the remedy. If there are none, it can be planned.
CLEAVE_API std::vector<std::string> validate(const GemmProblem& problem);

/// What calls that do not specify determinism get, as far as it is served: repeatable, batch_invariant or k_order. It
/// applies to the whole process, and is set by CLEAVE_BATCH_INVARIANT=1 or =k, or here. plan() below goes by its
/// problem alone.
CLEAVE_API Determinism default_determinism();
CLEAVE_API void set_default_determinism(Determinism promised);

/// One way to run a problem, with what the cost model expects of it.
struct Candidate {
  std::string kernel;  ///< readable name: family, tile, stages, cluster
  SplitKMode split_k_mode = SplitKMode::none;
  int32_t split_k_slices = 1;
  double predicted_us = 0;
  size_t workspace_size = 0;
};

/// How to run one problem on one device; immutable and thread-safe. The base of the plans of all operations, each of
/// which adds a `run` that enqueues on `stream` (a CUstream or cudaStream_t; the CPU backend ignores it and returns
/// when done). `run` never allocates, synchronises or compiles once `prepare` has run; outside capture, the first run
/// prepares by itself.
class CLEAVE_API Plan {
 public:
  virtual ~Plan() = default;

  /// Compiles and loads the kernels, and allocates the pooled workspace of `stream` if one is needed. Call it before
  /// capturing a CUDA graph.
  virtual void prepare(void* stream) const = 0;

  virtual std::string kernel_name() const = 0;  ///< names every launch; "cpu" on the CPU

  /// The translation units given to NVRTC, one for each kernel; none on the CPU.
  virtual std::vector<std::string> kernel_sources() const = 0;
  std::string kernel_source() const;  ///< all of them as one text

  /// Host memory that the plan occupies. The process caches the plans used last, up to 24 MiB for products, 4 MiB for
  /// quantisation, 2.5 MiB for mixtures of experts, 1 MiB for their routers and 0.5 MiB for adapters.
  virtual size_t host_bytes() const = 0;
};

/// The plan of a GEMM problem. host_bytes() is at most 4 KiB, plus 512 bytes per class of pixels of a strided dgrad,
/// their number rounded up to a power of two. Above 64 classes there are several launches, each of which takes as much.
class CLEAVE_API GemmPlan : public Plan {
 public:
  /// `workspace`: at least workspace_size() bytes, aligned to 16 bytes; nullptr for a pooled workspace of (device,
  /// stream).
  /// - Its first counter_size() bytes must be zero before its first use. Launches leave them zero; zero them again
  ///   before a plan with another counter_size() uses it, since partial tiles may have been there.
  /// - Launches that may run at the same time must not share it. The CPU backend refuses a workspace that is in use or
  ///   not zeroed; on a GPU only the kernel sees it, and D is wrong, as may be the results of later launches.
  /// - If it overlaps anything that the launch reads or writes, it is refused.
  virtual void run(const GemmArguments& arguments, void* workspace, size_t workspace_size, void* stream) const = 0;
  void run(const GemmArguments& arguments, void* stream) const { run(arguments, nullptr, 0, stream); }

  virtual size_t workspace_size() const = 0;  ///< exact, in bytes; 0 where the mode needs none
  virtual size_t counter_size() const = 0;    ///< leading bytes of the workspace that must start as zero

  virtual const GemmProblem& problem() const = 0;
  virtual SplitKMode split_k_mode() const = 0;  ///< the chosen mode, never automatic
  virtual int32_t split_k_slices() const = 0;
  virtual std::string why() const = 0;  ///< one sentence: what was chosen, against what, and any note
  /// Every candidate, cheapest first. Each call works them out anew, which costs as much as planning.
  virtual std::vector<Candidate> candidates() const = 0;
  virtual double roofline_us() const = 0;  ///< max(bytes / bandwidth, operations / peak) on this device
};

/// The plan of `problem`, cached (see host_bytes). Throws Error with every broken rule. For kCpu it needs no GPU,
/// driver or NVRTC; for a CUDA ordinal without a GPU it throws no_device.
CLEAVE_API std::shared_ptr<const GemmPlan> plan(const GemmProblem& problem);

}  // namespace cleave
