// The arithmetic of norms, element by element. One definition for the kernels and the CPU backend.
#pragma once

#include "cleave/core/macros.h"
#include "cleave/core/multiply_add.h"

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace cleave {

struct RowStatistics {
  float mean = 0.0f;     // 0 of rms_norm
  float inverse = 0.0f;  // 1 / sqrt(the mean square of what is left + eps)
};

CLEAVE_HD RowStatistics row_statistics(float mean, float mean_square, float eps) {
#if defined(__CUDA_ARCH__)
  return {mean, 1.0f / sqrtf(mean_square + eps)};
#else
  return {mean, 1.0f / std::sqrt(mean_square + eps)};
#endif
}

CLEAVE_HD float normalized(const RowStatistics& statistics, float x, float weight, float bias) {
  return multiply_add((x - statistics.mean) * statistics.inverse, weight, bias);
}

}  // namespace cleave
