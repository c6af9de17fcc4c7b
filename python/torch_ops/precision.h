// How torch wants float32 multiplied.
#pragma once

#include "cleave/core/enums.h"

namespace cleave::torch_ops {

/// What is asked at this moment: by cleave.torch.float32_precision, else by torch's own switch, that of products
/// (torch.backends.cuda.matmul's fp32_precision) or of convolutions (torch.backends.cudnn.conv's). Python reads them,
/// as torch's stable ABI cannot; in a process without Python it is what torch begins with: ieee, convolutions tf32.
Precision current_precision(bool convolution);

}  // namespace cleave::torch_ops
