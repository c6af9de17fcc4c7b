// The lists of numbers that say where a convolution's filters go.
#pragma once

#include <cstdint>
#include <span>

#include "operands/conv_operands.h"

namespace cleave {

/// As a call has them: each list has one number for all axes or one for each; padding may have two
/// for each, those before the axes first.
struct ConvSettings {
  std::span<const int64_t> stride, padding, dilation;
  int64_t groups;
};

// What is left to fill in is the type and the activation of D. All throw Error(invalid_argument)
// for a list of another length; the axes are as many as the weight has.
ConvOptions fprop_options(int64_t weight_dimensions, const ConvSettings& settings);
ConvOptions dgrad_options(std::span<const int64_t> input_size, int64_t weight_dimensions, const ConvSettings& settings);
ConvOptions wgrad_options(std::span<const int64_t> weight_size, const ConvSettings& settings);

}  // namespace cleave
