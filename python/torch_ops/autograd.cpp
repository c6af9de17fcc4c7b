#include "autograd.h"

#include <string>

// The stable ABI says nothing of these, and its way around, an operator of torch's that changes nothing
// in place, takes a good part of a microsecond. torch has had these functions for as long as it has
// had inference mode; one without them does not load this library, which is better than gradients
// that are silently wrong. A handle of the stable ABI points to an at::Tensor, and that is a pointer
// to a TensorImpl.
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
namespace {

bool requires_grad(const Tensor& tensor) {
  return (*reinterpret_cast<const c10::TensorImpl* const*>(tensor.get()))->requires_grad();
}

}  // namespace

Operand read_untracked(const Tensor& tensor, const char* name) {
  if (requires_grad(tensor) && aoti_torch_grad_mode_is_enabled()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(name) + " requires grad, but an out form has no gradient; pass " +
                    name + ".detach(), or use torch.no_grad()");
  }
  return read(tensor);
}

std::optional<Operand> read_untracked(const std::optional<Tensor>& tensor, const char* name) {
  return tensor ? std::optional(read_untracked(*tensor, name)) : std::nullopt;
}

void mark_written(const Tensor& tensor) {
  const auto& self = *reinterpret_cast<const at::Tensor*>(tensor.get());
  // Tensors of inference mode have no version, and autograd does not save them.
  if (!at::native::is_inference(self)) torch::autograd::impl::bump_version(self);
}

void mark_written(const std::optional<Tensor>& tensor) {
  if (tensor) mark_written(*tensor);
}

}  // namespace cleave::torch_ops
