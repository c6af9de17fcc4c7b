#include "autograd.h"

#include <string>

namespace cleave::torch_ops {

Operand read_untracked(const Tensor& tensor, const char* name) {
  if (wants_gradient(tensor.get())) {
    throw Error(ErrorCode::invalid_argument, std::string(name) + " requires grad, but has no gradient here; pass " +
                                                 name + ".detach(), or use torch.no_grad()");
  }
  return read(tensor);
}

std::optional<Operand> read_untracked(const std::optional<Tensor>& tensor, const char* name) {
  return tensor ? std::optional(read_untracked(*tensor, name)) : std::nullopt;
}

void mark_written(const std::optional<Tensor>& tensor) {
  if (tensor) mark_written(*tensor);
}

}  // namespace cleave::torch_ops
