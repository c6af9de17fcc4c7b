// What the operator is given, in the order of its schema: what the operation has.
#pragma once

#include <optional>
#include <vector>

#include "torch_function.h"
#include "torch_tensors.h"
#include "view.h"

namespace emitted::operation {

inline constexpr bool kScaled = kOperation.scale_a.kind != cleave::Scaling::none;

struct Inputs {
  std::vector<int64_t> input_size;  // of dgrad
  std::optional<Tensor> input, weight, grad_output, scale_a, scale_b, bias, c, scale_d;
  FunctionInputs function;
  double beta = 0, alpha = 1;

  explicit Inputs(StableIValue*& next) {
    if constexpr (kKind == Kind::dgrad)
      input_size = take<std::vector<int64_t>>(next);
    else
      input = take<Tensor>(next);
    if constexpr (kKind != Kind::wgrad) weight = take<Tensor>(next);
    if constexpr (kKind != Kind::fprop) grad_output = take<Tensor>(next);
    if constexpr (kScaled) scale_a = take<Tensor>(next);
    if constexpr (kScaled) scale_b = take<Tensor>(next);
    if constexpr (kOperation.bias != cleave::Bias::none) bias = take<Tensor>(next);
    if constexpr (kOperation.has_c) c = take<Tensor>(next);
    if constexpr (kOperation.has_scale_d) scale_d = take<Tensor>(next);
    function = FunctionInputs(next);
    if constexpr (kOperation.has_c) beta = take<double>(next);
    alpha = take<double>(next);
  }
};

}  // namespace emitted::operation
