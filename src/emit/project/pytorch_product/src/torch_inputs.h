// What the operator is given, in the order of its schema: what the operation has.
#pragma once

#include <optional>

#include "torch_function.h"
#include "torch_tensors.h"
#include "view.h"

namespace emitted::operation {

inline constexpr bool kScaled = kOperation.scale_a.kind != cleave::Scaling::none;
inline constexpr bool kGlobalScale = kOperation.weights_b.format == cleave::WeightFormat::nvfp4;
/// Each group has the first rows of a matrix of its own.
inline constexpr bool kMasked = kGroups.dimension == cleave::Grouping::m && !kHasOffsets;

struct Inputs {
  Tensor a, b;
  std::optional<Tensor> scales, zeros, global_scale;  // of a packed weight
  std::optional<Tensor> scale_a, scale_b, offsets, sizes, bias, c, scale_d, azp_adj, azp;
  FunctionInputs function;
  double beta = 0, alpha = 1;
  int64_t alignment = kGroups.spacing;

  explicit Inputs(StableIValue*& next) : a(take<Tensor>(next)), b(take<Tensor>(next)) {
    if constexpr (kPackedWeight) scales = take<Tensor>(next);
    if constexpr (kOperation.weights_b.has_zero) zeros = take<Tensor>(next);
    if constexpr (kGlobalScale) global_scale = take<Tensor>(next);
    if constexpr (kScaled) scale_a = take<Tensor>(next);
    if constexpr (kScaled && !kPackedWeight) scale_b = take<Tensor>(next);
    if constexpr (kHasOffsets) offsets = take<Tensor>(next);
    if constexpr (kHasSizes) sizes = take<Tensor>(next);
    if constexpr (kOperation.bias != cleave::Bias::none) bias = take<Tensor>(next);
    if constexpr (kOperation.has_c) c = take<Tensor>(next);
    if constexpr (kOperation.has_scale_d) scale_d = take<Tensor>(next);
    if constexpr (kOperation.has_zero) azp_adj = take<Tensor>(next);
    if constexpr (kOperation.has_zero) azp = take<std::optional<Tensor>>(next);
    function = FunctionInputs(next);
    if constexpr (kOperation.has_c) beta = take<double>(next);
    if constexpr (kSpaced && !kMasked) alignment = take<int64_t>(next);
    alpha = take<double>(next);
  }
};

}  // namespace emitted::operation
