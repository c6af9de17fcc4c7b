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
// A transposed convolution is a dgrad whose image is what it makes.
#pragma once

#include "cleave/gemm.h"

namespace cleave {

/// Outputs along an axis; 0 where the filter is larger than the padded image.
CLEAVE_API int64_t outputs(const ConvAxis& axis);

// Counts, of numbers that are not negative; 2^63 - 1 stands for all that are larger.

/// Pixels of all images, and of all outputs.
CLEAVE_API int64_t image_pixels(const ConvLayout& conv);
CLEAVE_API int64_t output_pixels(const ConvLayout& conv);

/// Taps of a filter.
CLEAVE_API int64_t taps(const ConvLayout& conv);

/// The problem of a convolution with `groups` groups (of conv.channels and conv.filters each) over
/// packed tensors. Bias (fprop and dgrad: Bias::row), C, activation, precision, split-K, other pixel
/// strides (a.stride_row ...) may be set afterwards. `validate` judges the result, so any numbers may
/// go in.
CLEAVE_API GemmProblem implicit_gemm(const ConvLayout& conv, int64_t groups, DType operands, DType output);

}  // namespace cleave
