// A packed weight's tensors.
#pragma once

#include <algorithm>

#include "call.h"
#include "launch/packed_weight.h"
#include "torch_inputs.h"
#include "torch_matrices.h"

namespace emitted::operation {

/// Columns of K that share a scale.
inline int64_t group_size(int64_t k) {
  return kWholeRows ? std::max<int64_t>(k, 1) : kOperation.weights_b.group;
}

/// A tensor of that shape, or `batch` of them, without gaps.
inline void* read_whole(const Tensor& x, const char* name, int32_t type, const Matrix& b, const Shape& shape,
                        int32_t device) {
  check_tensor(x, name, type, device);
  Shape whole;
  if (b.batched) whole.append(b.batch);
  for (const int64_t size : shape) whole.append(size);
  check_shape(x, name, whole);
  int64_t expected = 1;
  for (int64_t i = x.dim(); i-- > 0; expected *= x.size(i))
    if (x.size(i) > 1 && x.stride(i) != expected) refuse(name, " has gaps; pass ", name, ".contiguous()");
  return x.data_ptr();
}

/// The weight as a matrix of `k` rows, whose scales say how many columns.
inline Matrix read_weight(const Inputs& in, int64_t k, int32_t device, cleave::GemmArguments& x) {
  using cleave::WeightFormat;
  const Tensor& scales = *in.scales;
  const int64_t rank = scales.dim(), group = group_size(k);
  if (rank != 2 && rank != 3)
    refuse("scales is ", text(scales.sizes()), "; it must be a matrix or a batch of matrices");
  if (k % group != 0)
    refuse("a has ", k, " columns; they must be a multiple of ", group, ", as many as share a scale of the weight");
  const Matrix b{k, scales.size(rank - 1), rank == 3 ? scales.size(0) : 1, rank == 3};
  const int32_t byte = aoti_torch_dtype_uint8();
  constexpr DType scale_type = cleave::weight_scale_type(kOperation.weights_b.format, kOperation.b.dtype);
  const int32_t type = scale_type == DType::i8 ? byte : cleave::torch_ops::type_number(scale_type);
  const Shape grouped{k / group, b.columns};
  const Shape blocks{cleave::weight_blocks(b.columns), cleave::weight_blocks(k), cleave::kWeightBlockBytes};
  x.b = read_whole(in.b, "packed", byte, b, blocks, device);
  x.weight_scale = read_whole(scales, "scales", type, b, grouped, device);
  if constexpr (kOperation.weights_b.has_zero)
    x.weight_zero = static_cast<const uint8_t*>(read_whole(*in.zeros, "zeros", byte, b, grouped, device));
  if constexpr (kGlobalScale)
    x.scale_b = static_cast<const float*>(in.global_scale->data_ptr());  // place_weight says more
  return b;
}

/// Where the weight lies that the problem, whose sizes are known, is of.
inline void place_weight(const Inputs& in, cleave::GemmProblem& p) {
  p.weights_b.group = group_size(p.k);
  const int64_t entries = in.scales->dim() == 3 ? in.scales->size(0) : 1;
  cleave::place_packed_weight(p, entries == 1);
  if constexpr (kGlobalScale) {
    const Tensor& x = *in.global_scale;
    const bool by_row = x.dim() == (entries > 1 ? 2 : 1) && x.numel() != entries;
    read_vector(x, "global_scale", DType::f32, by_row ? p.n : 1, entries, true, in.a.get_device_index(),
                p.scale_b.stride_row, p.scale_b.stride_batch);
  }
}

}  // namespace emitted::operation
