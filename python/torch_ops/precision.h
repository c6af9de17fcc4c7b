// The precision that torch asks for in float32 products.
#pragma once

#include "cleave/core/enums.h"

namespace cleave::torch_ops {

/// The precision in force: that of cleave.torch.float32_precision, or else of torch's own switch for products
/// (torch.backends.cuda.matmul's fp32_precision) or convolutions (torch.backends.cudnn.conv's). Python reads them,
/// since torch's stable ABI cannot. A process without Python has torch's defaults: ieee, and tf32 for convolutions.
Precision current_precision(bool convolution);

}  // namespace cleave::torch_ops
