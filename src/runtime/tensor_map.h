// Tensor maps: how the TMA unit sees a matrix in memory.
#pragma once

#include <cuda.h>

#include "cleave/memory/tensor_map.h"
#include "launch/map_shapes.h"

namespace cleave {

/// Throws Error(unsupported), naming the dimension, for what TMA cannot address; the portable
/// kernel can.
CUtensorMap make_tensor_map(const void* base, const TensorMapShape& shape);

/// Throws Error(unsupported), naming the dimension, for what TMA cannot address.
CUtensorMap make_tensor_map(const void* base, const Im2colMapShape& shape);

/// Makes a map that `replace_address` has yet to point at something.
void encode_placeless(TensorMap& map, const TensorMapShape& shape);
void encode_placeless(TensorMap& map, const Im2colMapShape& shape);

/// Points a map at another matrix of the same shape. Throws Error(unsupported) if `base` is not
/// 16-byte aligned.
void replace_address(TensorMap& map, const void* base);

}  // namespace cleave
