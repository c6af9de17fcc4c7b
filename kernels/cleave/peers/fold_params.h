// The argument of the kernel that adds the ranks' partial results up, filled by the host for each launch and passed as
// a __grid_constant__.
#pragma once

#include "cleave/core/fast_divmod.h"
#include "cleave/peers/meeting_params.h"

namespace cleave {

/// Strides are in elements.
struct FoldParams {
  MeetingParams meeting;
  uint32_t rows = 0;
  uint32_t columns = 0;  // of D
  uint32_t pieces = 0;   // of all rows
  FastDivmod row;        // pieces of one
  const void* partials[kMostRanks] = {};
  int64_t partial_stride = 0;
  const float* scale_a = nullptr;  // of the rows of what i32 partial results are sums of; nullptr: 1
  const float* scale_b = nullptr;  // and of the columns
  int64_t scale_a_stride = 0, scale_b_stride = 0;
  const void* c = nullptr;
  int64_t c_stride = 0;
  const void* bias = nullptr;
  const float* scale_d = nullptr;
  float* scale_out = nullptr;  // one for each 128 columns of a row, where they are found
  int64_t scale_out_row_stride = 0, scale_out_block_stride = 0;
  void* d = nullptr;
  int64_t d_stride = 0;
};

}  // namespace cleave
