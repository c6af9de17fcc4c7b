// Arguments of convolutions that are not arrays.
#pragma once

#include <nanobind/nanobind.h>

#include "call/parameters.h"
#include "operands/conv_operands.h"

namespace cleave::python {

namespace arg {

using Input = Array<"input">;
using Weight = Array<"weight">;
using GradOutput = Array<"grad_output">;
using Stride = Other<"stride", "object", "1">;
using Padding = Other<"padding", "object", "0">;
using Dilation = Other<"dilation", "object", "1">;
using Groups = Integer<"groups", "1">;
using Convert = Flag<"convert", "False">;
using Division = OneOf<"division", cleave::Division, "'auto'">;

/// A convolution, and so never "none".
struct Kind : Parameter<"kind", "str"> {
  static Conv parse(nanobind::handle value);
};

}  // namespace arg

using Geometry = List<arg::Stride, arg::Padding, arg::Dilation, arg::Groups>;

using ConvArguments =
    Values<arg::Stride, arg::Padding, arg::Dilation, arg::Groups, arg::Division, arg::Activation, arg::OutDtype>;

/// Throws Error for what is no number, no sequence of as many as there are axes, or no name. What of
/// the plan there is in `product` is the plan's.
ConvOptions parse_conv_options(Conv kind, int axes, const ConvArguments& arguments, const ProductArguments& product);

/// One integer for all axes, or one for each.
AxisNumbers parse_numbers(nanobind::handle value, const char* name, int axes);

/// A shape of `axes` + 2 integers.
Extents parse_size(nanobind::handle value, const char* name, int axes);

}  // namespace cleave::python
