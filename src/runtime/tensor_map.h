// Tensor maps: how the TMA unit sees a matrix in memory.
#pragma once

#include "cleave/memory/tensor_map.h"
#include "launch/map_shapes.h"

namespace cleave {

/// The base of a map that `replace_address` has yet to point at something.
inline const void* const kNowhere = reinterpret_cast<const void*>(uintptr_t(1) << 20);

/// Throws Error(unsupported), naming the dimension, for what TMA cannot address; the portable
/// kernel can.
TensorMap make_tensor_map(const void* base, const TensorMapShape& shape);
TensorMap make_tensor_map(const void* base, const Im2colMapShape& shape);

/// Points a map at another matrix of the same shape. Throws Error(unsupported) if `base` is not
/// 16-byte aligned.
void replace_address(TensorMap& map, const void* base);

}  // namespace cleave
