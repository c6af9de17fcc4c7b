#include "operands/conv_settings.h"

#include <algorithm>

#include "base/refuse.h"

namespace cleave {
namespace {

int axes_of(int64_t dimensions, const char* name) {
  if (dimensions < 3 || dimensions > Operand::kMaxRank) {
    refuse_value("{} has {} dimensions; it must have 3, 4 or 5: filters, channels, then the axes", name, dimensions);
  }
  return int(dimensions) - 2;
}

AxisNumbers by_axis(std::span<const int64_t> given, int axes, const char* name) {
  if (given.size() != 1 && given.size() != size_t(axes)) {
    refuse_value("{} has {} numbers, but there are {} axes; pass one for all, or one for each", name, given.size(),
                 axes);
  }
  AxisNumbers numbers{};
  for (int i = 0; i < axes; ++i) numbers[i] = given[given.size() == 1 ? 0 : i];
  return numbers;
}

Extents shape_of(std::span<const int64_t> size, int axes, const char* name) {
  if (size.size() != size_t(axes) + 2) {
    refuse_value("{} has {} numbers, but weight has {} dimensions; pass one for each", name, size.size(), axes + 2);
  }
  Extents shape{};
  std::ranges::copy(size, shape.begin());
  return shape;
}

}  // namespace

ConvOptions conv_options(Conv kind, int64_t weight_dimensions, std::span<const int64_t> size,
                         const ConvSettings& settings) {
  const int axes = axes_of(weight_dimensions, kind == Conv::wgrad ? "weight_size" : "weight");
  std::span<const int64_t> before = settings.padding, after = before;
  if (before.size() == 2 * size_t(axes)) {
    after = before.last(axes);
    before = before.first(axes);
  }
  ConvOptions options{.kind = kind,
                      .axes = axes,
                      .stride = by_axis(settings.stride, axes, "stride"),
                      .dilation = by_axis(settings.dilation, axes, "dilation"),
                      .pad_begin = by_axis(before, axes, "padding"),
                      .pad_end = by_axis(after, axes, "padding"),
                      .groups = settings.groups};
  if (kind != Conv::fprop) options.size = shape_of(size, axes, kind == Conv::dgrad ? "input_size" : "weight_size");
  return options;
}

}  // namespace cleave
