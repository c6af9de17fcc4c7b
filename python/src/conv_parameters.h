// Arguments of convolutions that are not arrays.
#pragma once

#include <nanobind/nanobind.h>

#include "operands/conv_operands.h"

namespace cleave::python {

/// As Python handed them over; null where the caller has none.
struct ConvParameters {
  nanobind::handle stride, padding, dilation, groups, activation, out_dtype;
  nanobind::handle division = {};  ///< where it can be chosen
};

/// Throws Error for what is no number, no sequence of as many as there are axes, or no name.
ConvOptions parse_conv_options(Conv kind, int axes, const ConvParameters& parameters);

/// One integer for all axes, or one for each.
AxisNumbers parse_numbers(nanobind::handle value, const char* name, int axes);

/// A shape of `axes` + 2 integers.
Extents parse_size(nanobind::handle value, const char* name, int axes);

}  // namespace cleave::python
