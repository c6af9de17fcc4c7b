// What a launch of the Hopper kernel takes for a product of matrices, neither grouped nor a convolution
// (those: cost.h).
#pragma once

#include "plan/choice/choice.h"
#include "plan/cost/product_constants.h"

namespace cleave {

/// Microseconds, inputs in device memory (cold L2), after an ordinary kernel. The first four run side by side, the
/// others after them.
struct ProductTime {
  double on_chip, l2, memory, power;
  double epilogues, reduction;
  double us;  ///< of the whole
};

ProductTime predict_product(const Choice& choice, const DeviceInfo& device, const ProductConstants& constants);

}  // namespace cleave
