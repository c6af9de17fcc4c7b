// What autograd must know of an operator that writes to its arguments. The stable ABI has no kernels for
// autograd's dispatch keys that could call the next one, so the kernels of `out` forms tell it.
#pragma once

#include "tensor.h"
#include "unstable.h"

namespace cleave::torch_ops {

/// `read` for a form without gradients: throws Error(invalid_argument), naming the argument, if `tensor`
/// requires one.
Operand read_untracked(const Tensor& tensor, const char* name);
std::optional<Operand> read_untracked(const std::optional<Tensor>& tensor, const char* name);

/// As unstable.h has it.
void mark_written(const std::optional<Tensor>& tensor);

}  // namespace cleave::torch_ops
