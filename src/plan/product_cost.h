// What a launch of the Hopper kernel takes for a product of matrices, neither grouped nor a convolution
// (those: cost.h).
#pragma once

#include "plan/choice.h"
#include "plan/product_constants.h"

namespace cleave {

/// Microseconds, inputs in device memory (cold L2), after an ordinary kernel. The first four run side by side, the
/// others after them.
struct ProductTime {
  double on_chip, l2, memory, power;
  double epilogues, reduction;
  double us;  ///< of the whole
};

/// Bytes that A takes, of those that its elements would: a packed weight has 4 bits.
double stored_share_of_a(const GemmConfig& config);

/// Clocks in which one CTA makes a k block of a packed weight's elements; 0 of other operands.
double dequantise_clocks(const GemmConfig& config);

ProductTime predict_product(const Choice& choice, const DeviceInfo& device, const ProductConstants& constants);

}  // namespace cleave
