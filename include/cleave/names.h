// The names of the vocabulary, as users type and read them, in Python, on the command line and in
// messages.
#pragma once

#include <string_view>

#include "cleave/core/enums.h"
#include "cleave/error.h"

namespace cleave {

/// float16, bfloat16, float32, int8, float8_e4m3fn, float8_e5m2, int32
std::string_view to_string(DType value);
std::string_view to_string(Precision value);    ///< tf32, ieee
std::string_view to_string(SplitKMode value);   ///< none, serial, parallel, cluster, stream_k, auto
std::string_view to_string(Activation value);   ///< none, relu, gelu_tanh, gelu, silu, swiglu
std::string_view to_string(Bias value);         ///< none, row, column
std::string_view to_string(Scaling value);      ///< none, vector, block
std::string_view to_string(Grouping value);     ///< none, m, n, k
std::string_view to_string(GroupBounds value);  ///< ends, indptr, starts, aligned_ends, counts
std::string_view to_string(Conv value);         ///< none, fprop, dgrad, wgrad
std::string_view to_string(Division value);     ///< auto, fast, plain, fast_load, fast_store
std::string_view to_string(Granularity value);  ///< tensor, row, block_1x128, block_128x128
std::string_view to_string(Major value);        ///< k, mn
std::string_view to_string(Order value);        ///< row, column
std::string_view to_string(KernelFamily value);  ///< auto, sm90, portable

/// The inverse of to_string. Throws Error(invalid_argument), or Error(invalid_type) for a DType,
/// listing every accepted name and saying which one may have been meant.
template <class Enum>
Enum from_string(std::string_view name);

template <>
DType from_string(std::string_view name);
template <>
Precision from_string(std::string_view name);
template <>
SplitKMode from_string(std::string_view name);
template <>
Activation from_string(std::string_view name);
template <>
Bias from_string(std::string_view name);
template <>
Scaling from_string(std::string_view name);
template <>
Grouping from_string(std::string_view name);
template <>
GroupBounds from_string(std::string_view name);
template <>
Conv from_string(std::string_view name);
template <>
Division from_string(std::string_view name);
template <>
Granularity from_string(std::string_view name);
template <>
Major from_string(std::string_view name);
template <>
Order from_string(std::string_view name);
template <>
KernelFamily from_string(std::string_view name);

}  // namespace cleave
