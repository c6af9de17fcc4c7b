// What a launch of the Hopper kernel takes for a product of matrices, neither grouped nor a convolution
// (those: cost.h).
#pragma once

#include "plan/choice.h"
#include "plan/product_constants.h"

namespace cleave {

/// Microseconds, inputs in device memory (cold L2), after an ordinary kernel.
double predict_product_us(const Choice& choice, const DeviceInfo& device, const ProductConstants& constants);

}  // namespace cleave
