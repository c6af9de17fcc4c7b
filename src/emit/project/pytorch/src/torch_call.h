// One call of the operator: its tensors, read and checked.
#pragma once

#include "call.h"
#include "torch_inputs.h"
#include "torch_tensors.h"

namespace emitted::operation {

class TorchCall {
 public:
  explicit TorchCall(const Inputs& in);

  Tensor new_result() const;
  void set_result(const Tensor& result, const char* name);
  /// What the epilogue function makes beside D.
  Tensor new_output(uint32_t output) const;
  void set_output(uint32_t output, const Tensor& made, const char* name);
  void set_amax(const Tensor& amax);

  int32_t device() const { return device_; }

  /// Enqueues on PyTorch's current stream.
  void run() const;

 private:
  int32_t device_;
  Given given_;
  Shape shape_;  // of the result
};

}  // namespace emitted::operation
