// Facts that follow from a ConvLayout alone.
#pragma once

#include "cleave/conv.h"

namespace cleave {

/// What m, n and k of a convolution's problem are.
struct ProductSizes {
  int64_t m, n, k;
};
ProductSizes product_sizes(const ConvLayout& conv);

/// Whether A is the gathered operand, as in fprop and dgrad; else B is.
bool gathers_a(const ConvLayout& conv);

/// Pixels of the images that some tap reads, in fprop and wgrad: fewer than there are where the
/// stride is larger than the filter.
int64_t pixels_read(const ConvLayout& conv);

}  // namespace cleave
