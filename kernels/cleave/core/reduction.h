// What an output of an epilogue function is reduced by.
#pragma once

#include "cleave/core/element.h"
#include "cleave/core/enums.h"
#include "cleave/core/math.h"

namespace cleave {

/// What one value brings. Nothing brings 0.
CLEAVE_HD float reduced_part(Reduction reduction, float value) {
  return reduction == Reduction::absmax ? bits_float(float_bits(value) & 0x7fffffffu) : value;
}

/// What two parts come to. Magnitudes order like their bits, NaNs last.
CLEAVE_HD float joined(Reduction reduction, float x, float y) {
  return reduction == Reduction::absmax ? bits_float(max_of(float_bits(x), float_bits(y))) : x + y;
}

/// Whether what D is reduced to, of such a shape, is over the rows (columns) that are cut into groups: each group has a
/// value of its own then.
CLEAVE_HD constexpr bool is_over_groups(Grouping grouping, InputShape shape) {
  if (shape == InputShape::scalar) return grouping == Grouping::m || grouping == Grouping::n;
  return shape == InputShape::row ? grouping == Grouping::m : shape == InputShape::column && grouping == Grouping::n;
}

}  // namespace cleave
