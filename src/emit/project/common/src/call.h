// A call worked out: from what it is given to the parameter of the kernel, and its launch.
#pragma once

#include "emitted/operation.h"

#include "launch/reductions.h"
#include "view.h"

namespace emitted::operation {

/// The operation's problem with the sizes and strides of a call, and its pointers.
struct Given {
  cleave::GemmProblem problem = kOperation;
  cleave::GemmArguments arguments = {};
};

/// Throws std::invalid_argument if there is something wrong with the sizes.
Given read(const Arguments& arguments);

/// What of a call does not depend on pointers.
class Call {
 public:
  /// The thread's last one of this launch, if it was of the same problem; else it is worked out, and then the last.
  /// Throws std::invalid_argument, with the remedy, if the kernel does not serve the problem.
  static const Call& of(const cleave::GemmProblem& problem, const Kernel& kernel, uint32_t num_sms);

  /// The call whose pointers may still be null: throws for what is wrong with the others, too.
  static const Call& of(const Given& given, const Device& device);

  /// Without blocks if D is empty.
  const cleave::GemmGrid& grid() const { return grid_; }

  /// The partial results of what D is reduced to, which a second kernel joins.
  const cleave::Joins& joins() const { return joins_; }

  /// Bytes of partial tiles, and of partial results of what D is reduced to.
  size_t partial_bytes() const { return grid_.partial_bytes + joins_.bytes(); }

  /// The kernel's parameter but for the workspace, of kParamsBytes.
  cleave::GemmParams& make_params(const cleave::GemmArguments& arguments, void* memory) const;

 private:
  void work_out(const Kernel& kernel, uint32_t num_sms);

  cleave::GemmProblem problem_;
  const Kernel* kernel_ = nullptr;
  uint32_t num_sms_ = 0;
  View view_;
  cleave::GemmGrid grid_;
  cleave::Joins joins_;
  alignas(cleave::TensorMap) std::byte params_[kParamsBytes];
};

/// Enqueues the call on `stream`, as Operation's call operator does.
void enqueue(const Given& given, const Device& device, const FindWorkspace& find_workspace, CUstream stream);

}  // namespace emitted::operation
