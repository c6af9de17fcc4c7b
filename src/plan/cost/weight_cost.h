// What a packed weight costs a Hopper kernel's mainloop.
#pragma once

#include "cleave/config/gemm_config.h"

namespace cleave {

/// Bytes that A takes, of those that its elements would: a packed weight has 4 bits.
double stored_share_of_a(const GemmConfig& config);

/// Clocks in which one CTA multiplies a k block that takes `multiply` by itself: of a packed weight it makes the
/// elements, too.
double with_dequantising(const GemmConfig& config, double multiply);

/// What a launch takes besides: with more than three warpgroups that multiply, or slices that meet in memory.
double beside_weights_us(const GemmConfig& config);

}  // namespace cleave
