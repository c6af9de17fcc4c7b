// What a launch of the streamed kernel takes (kernel/gemm_streamed.h).
#pragma once

#include "plan/choice/choice.h"

namespace cleave {

double predict_streamed_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
