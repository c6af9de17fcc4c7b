// Names and docstrings of the convolutions, of any rank.
#pragma once

#include <string>

namespace cleave::python {

struct FunctionText {
  std::string name, doc;
};

// For images with 1 to 3 axes.
FunctionText conv_text(int axes);
FunctionText conv_dgrad_text(int axes);
FunctionText conv_wgrad_text(int axes);
FunctionText conv_transpose_text(int axes);
FunctionText plan_conv_text(int axes);

inline constexpr const char* kPlanConvProblemDoc =
    R"(Plans a convolution of packed arrays from its sizes alone.

Takes images [images, channels, *size], size having 1 to 3 numbers, and filters [filters, channels /
groups, *filter_size]. kind: "fprop", or "dgrad" and "wgrad", its gradients. bias: "none" or "row".
device: "cpu", "cuda", "cuda:<index>", or "h100" to plan for an H100 on any machine.

The other arguments, and the errors, are those of `conv2d`; division is as in `conv2d_dgrad`.)";

}  // namespace cleave::python
