// A call worked out: from the arguments of a call to the parameter of the kernel.
#pragma once

#include <string>

#include "emitted/operation.h"

#include "view.h"

namespace emitted::operation {

/// The operation's problem with the sizes and strides of a call, and its pointers.
struct Given {
  cleave::GemmProblem problem = kOperation;
  cleave::GemmArguments arguments = {};
};

/// Fills `given`, if there is nothing wrong with the sizes; else says what, and the remedy.
std::string read(const Arguments& arguments, Given& given);

/// What of a call does not depend on pointers.
class Call {
 public:
  /// The thread's last one, if it was of the same problem; else it is worked out, and then the last.
  static const Call& of(const cleave::GemmProblem& problem, const Kernel& kernel, uint32_t num_sms);

  /// Why the kernel does not serve the problem, and the remedy; empty if it does.
  const std::string& obstacle() const { return obstacle_; }

  /// Without blocks if D is empty.
  const cleave::GemmGrid& grid() const { return grid_; }

  /// The kernel's parameter but for the workspace, of kParamsBytes.
  cleave::GemmParams& make_params(const cleave::GemmArguments& arguments, void* memory) const;

 private:
  void work_out(const Kernel& kernel, uint32_t num_sms);

  cleave::GemmProblem problem_;
  const Kernel* kernel_ = nullptr;
  uint32_t num_sms_ = 0;
  std::string obstacle_;
  View view_;
  cleave::GemmGrid grid_;
  alignas(cleave::TensorMap) std::byte params_[kParamsBytes];
};

}  // namespace emitted::operation
