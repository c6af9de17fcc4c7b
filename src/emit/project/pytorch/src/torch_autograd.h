// What autograd has to know of an operator that writes to its arguments. The stable ABI has no
// kernels for autograd's dispatch keys that could go on to the next one, so those of `out` forms see
// to it.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "torch_ops.h"
#include "torch_ops/unstable.h"
#include "torch_tensors.h"

namespace emitted::operation {

/// The arguments of a schema, by their place in a call: the names of tensors, empty for the rest.
inline std::vector<std::string> tensor_names(std::string_view schema) {
  std::vector<std::string> names;
  while (!schema.empty()) {
    const size_t end = schema.find(", ");
    const std::string_view argument = schema.substr(0, end);
    schema.remove_prefix(end == schema.npos ? schema.size() : end + 2);
    if (argument == "*") continue;
    const bool is_tensor = argument.starts_with("Tensor ") || argument.starts_with("Tensor(");
    names.emplace_back(is_tensor ? argument.substr(argument.find(' ') + 1) : "");
  }
  return names;
}

/// A call of the `out` form, which has no gradients.
inline void refuse_gradients(const StableIValue* stack) {
  static const auto& names = *new std::vector<std::string>(tensor_names(kOutSchema));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    if (!cleave::torch_ops::wants_gradient(torch::stable::detail::to<AtenTensorHandle>(stack[i]))) continue;
    refuse(names[i], " requires grad, but an out form has no gradient; pass ", names[i],
           ".detach(), or use torch.no_grad()");
  }
}

using cleave::torch_ops::mark_written;

}  // namespace emitted::operation
