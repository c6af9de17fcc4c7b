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

/// What is left to fill in is the type and the activation of D. `size`: the shape of what a gradient makes. The axes
/// are as many as the weight has. Throws Error(invalid_argument) for a list of another length.
ConvOptions conv_options(Conv kind, int64_t weight_dimensions, std::span<const int64_t> size,
                         const ConvSettings& settings);

}  // namespace cleave
