// Functions of torch that its stable ABI lacks. The way around them, an operator of torch's that changes
// nothing in place, takes a good part of a microsecond. torch has had these functions since it has had
// inference mode; a torch without them does not load this library, which is better than gradients that are
// silently wrong. A handle of the stable ABI points to an at::Tensor, which is a pointer to a TensorImpl.
//
// Emitted extensions have a copy of this file.
#pragma once

#include <torch/csrc/stable/tensor.h>

namespace at {
class Tensor;
namespace native {
bool is_inference(const Tensor& tensor);
}
}  // namespace at
namespace c10 {
class TensorImpl {
 public:
  bool requires_grad() const;
};
}  // namespace c10
namespace torch::autograd::impl {
void bump_version(const at::Tensor& tensor);
}

namespace cleave::torch_ops {

/// Whether autograd follows `tensor`, and is on.
inline bool wants_gradient(AtenTensorHandle tensor) {
  return aoti_torch_grad_mode_is_enabled() &&
         (*reinterpret_cast<const c10::TensorImpl* const*>(tensor))->requires_grad();
}

/// To be called after `tensor` was written: what autograd saved of it is no longer valid, and backward() will
/// say so.
inline void mark_written(const torch::stable::Tensor& tensor) {
  const auto& self = *reinterpret_cast<const at::Tensor*>(tensor.get());
  // Tensors of inference mode have no version, and autograd does not save them.
  if (!at::native::is_inference(self)) torch::autograd::impl::bump_version(self);
}

}  // namespace cleave::torch_ops
