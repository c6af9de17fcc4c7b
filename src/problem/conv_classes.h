// The classes that a convolution's pixels fall into, as every backend schedules them.
#pragma once

#include <vector>

#include "cleave/gemm.h"
#include "launch/conv_view.h"

namespace cleave {

/// Deepest first, without tiles yet (deal_tiles). None where no pixel takes part. `conv` breaks no
/// rule of `validate`.
std::vector<ConvClass> conv_classes(const ConvLayout& conv);

/// A dgrad's classes fused, without tiles; false if they cannot be (fused_classes.h).
bool fuse_classes(const ConvLayout& conv, ConvClass& fused, FusedClasses& columns);

/// Channels of the gathered operand, of one group.
uint32_t gathered_channels(const ConvLayout& conv);

}  // namespace cleave
