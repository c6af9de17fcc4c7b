// Mean and mean square of a row that a team of threads holds; all of them get both.
#pragma once

#include "cleave/quantize/norm.h"
#include "cleave/quantize/quantize_rows.h"

namespace cleave {

/// Sums over the team. The order is that of its lanes and warps.
template <QuantizeConfig C>
CLEAVE_DEVICE float sum_over_team(float value, float (&of_warps)[32]) {
  constexpr uint32_t kLanes = RowTeam<C>::kWholeCta ? 32 : C.lanes;
  const auto sum_over_lanes = [](float sum) {
    CLEAVE_UNROLL
    for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
  };
  value = sum_over_lanes(value);
  if constexpr (RowTeam<C>::kWholeCta) {
    const uint32_t lane = threadIdx.x % 32;
    if (lane == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = sum_over_lanes(lane < blockDim.x / 32 ? of_warps[lane] : 0.0f);
  }
  return value;
}

/// The statistics of the row whose accesses row.for_each_access(use) shows, in order.
template <QuantizeConfig C, class Row>
CLEAVE_DEVICE RowStatistics find_statistics(const QuantizeParams& p, const Row& row) {
  __shared__ float of_warps[2][32];
  float mean = 0.0f;
  if constexpr (C.norm == Norm::layer_norm) {
    float sum = 0.0f;
    row.for_each_access([&](const float (&values)[C.width], bool) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < C.width; ++i) sum += values[i];
    });
    mean = sum_over_team<C>(sum, of_warps[0]) / float(p.cols);
  }
  float squares = 0.0f;
  row.for_each_access([&](const float (&values)[C.width], bool exists) {
    const float center = exists ? mean : 0.0f;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.width; ++i) squares = multiply_add(values[i] - center, values[i] - center, squares);
  });
  return row_statistics(mean, sum_over_team<C>(squares, of_warps[1]) / float(p.cols), p.eps);
}

}  // namespace cleave
