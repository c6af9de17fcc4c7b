// Facts that follow from a ConvLayout, or the problem that has it, alone.
#pragma once

#include <optional>

#include "cleave/conv.h"
#include "launch/conv_view.h"

namespace cleave {

/// What m, n and k of a convolution's problem are.
struct ProductSizes {
  int64_t m, n, k;
};
ProductSizes product_sizes(const ConvLayout& conv);

/// Whether A is the gathered operand, as in fprop and dgrad; else B is.
bool gathers_a(const ConvLayout& conv);

/// Channels of the gathered operand, of one group.
inline uint32_t gathered_channels(const ConvLayout& conv) {
  return uint32_t(conv.kind == Conv::dgrad ? conv.filters : conv.channels);
}

/// The classes that the pixels fall into, as every backend schedules them: deepest first, without tiles yet
/// (deal_tiles). None where no pixel takes part. `conv` breaks no rule of `validate`.
inline std::vector<ConvClass> conv_classes(const ConvLayout& conv) {
  ConvGeometry geometry = conv_geometry(conv, 1);
  geometry.part = kAllClasses;
  return find_classes(geometry, false).list;
}

/// The product of matrices, with the same arguments, that a convolution is whose filters have one tap: of one group, a
/// stride of 1 and no padding, so that each pixel is a row as it lies. Nothing of any other.
std::optional<GemmProblem> matrix_product(const GemmProblem& problem);

/// Pixels of the images that some tap reads, in fprop and wgrad: fewer than there are where the
/// stride is larger than the filter.
int64_t pixels_read(const ConvLayout& conv);

}  // namespace cleave
