// Convolutions of any stride, padding, dilation and number of groups, in one to three dimensions,
// forward and both gradients, as implicit products: nothing is unfolded in memory.
//
//   cleave::ConvLayout conv{.kind = cleave::Conv::fprop, .images = 32, .channels = 128,
//                           .filters = 256, .axes = {{}, {56, 3, 2, 1, 1}, {56, 3, 2, 1, 1}}};
//   auto problem = cleave::implicit_gemm(conv, 1, cleave::DType::f16, cleave::DType::f16);
//   cleave::plan(problem)->run({.a = x, .b = w, .d = y}, stream);
//
// Tensors lie as NHWC (NDHWC) and KRSC (KTRSC): torch's channels_last.
//
// | kind  | a  | b | d  |
// |-------|----|---|----|
// | fprop | x  | w | y  |
// | dgrad | dy | w | dx |
// | wgrad | dy | x | dw |
//
// A transposed convolution is a dgrad whose image is the output. conv_layout.h has ConvLayout, and counts its pixels
// and taps.
#pragma once

#include "cleave/conv_layout.h"
#include "cleave/gemm.h"

namespace cleave {

/// The problem of a convolution of packed tensors in `groups` groups of conv.channels channels and conv.filters
/// filters. Bias (fprop and dgrad: Bias::row), C, epilogue, precision, split-K and other pixel strides (a.stride_row
/// ...) may be set afterwards. Accepts any numbers; `validate` checks the result.
CLEAVE_API GemmProblem implicit_gemm(const ConvLayout& conv, int64_t groups, DType operands, DType output);

}  // namespace cleave
