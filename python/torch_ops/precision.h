// How torch wants float32 multiplied.
#pragma once

#include "cleave/core/enums.h"

namespace cleave::torch_ops {

/// What torch's own switch says at this moment: that of products (torch.backends.cuda.matmul's
/// fp32_precision) or of convolutions (torch.backends.cudnn.conv's). Python reads it, as torch's stable
/// ABI cannot; in a process without Python it is what torch begins with: ieee, convolutions tf32.
Precision current_precision(bool convolution);

}  // namespace cleave::torch_ops
