// The one argument of every quantising kernel, filled by the host for each launch and passed as a
// __grid_constant__. Strides count elements.
#pragma once

#include "cleave/core/fast_divmod.h"
#include "cleave/core/quantizer.h"
#include "cleave/quantize/norm.h"
#include "cleave/schedule/groups.h"

namespace cleave {

/// Where scales lie: by group of rows, and by group along a row.
struct StoredScales {
  float* data = nullptr;
  int64_t stride_row = 0, stride_col = 0;

  CLEAVE_HD float& at(uint32_t row, uint32_t col) const { return data[row * stride_row + col * stride_col]; }
};

/// Up to 128 neighbouring rows of x: one line of tiles.
struct Band {
  uint32_t row = 0;  // the first
  uint16_t rows = 0;
  bool in_group = false;  // else only q takes them, and the transpose gets zeros
};

/// Band `number` of those that cover the rows from `begin` to `end`.
CLEAVE_HD Band band_from(uint32_t begin, uint32_t end, uint32_t number, bool in_group) {
  const uint32_t row = begin + number * kScaleBlock;
  const uint32_t rows = row < end ? min_of(end - row, kScaleBlock) : 0;
  return {row, uint16_t(rows), in_group};
}

struct QuantizeParams {
  const void* x = nullptr;
  void* q = nullptr;
  int64_t x_stride = 0, q_stride = 0;
  uint32_t rows = 0;
  int64_t cols = 0;  // beyond 32 bits where a whole tensor is one row
  const float* smooth = nullptr;

  StoredScales scale;
  uint32_t rows_per_scale_log2 = 0;  // given_scale
  int32_t* zero = nullptr;
  int64_t zero_stride = 0;  // to the next row's; 0 has one for all

  // normed; its groups are rows
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  void* residual_out = nullptr;
  void* normed = nullptr;
  int64_t residual_stride = 0, residual_out_stride = 0, normed_stride = 0;
  float eps = 0.0f, weight_offset = 0.0f;

  RowStatistics* statistics = nullptr;  // by row: find_norms, and tiles of norms

  // Groups are pieces of rows, `group_cols` long, in the order of memory; tiles are groups too.
  uint32_t group_cols = 0;
  uint32_t groups = 0;
  FastDivmod groups_per_row;

  // tiles: the transpose
  void* q_t = nullptr;
  int64_t q_t_stride = 0;
  StoredScales scale_t;

  // find_bands, and tiles where grouped: the transpose's columns are whole bands, of which the last
  // may be fewer than those of x, since rows in no group have none.
  GroupParams group_bounds;
  int32_t* padded_ends = nullptr;  // by group: where its columns of the transpose end
  Band* band_table = nullptr;
  uint32_t bands = 0, padded_bands = 0;

  // measure: reach above, reach below, CTAs that are done; zero between launches
  uint32_t* counters = nullptr;
};

/// A piece of a row.
struct RowGroup {
  uint32_t row;
  uint32_t index;  // within the row
  int64_t col;
  uint32_t size;
};

CLEAVE_HD RowGroup row_group(const QuantizeParams& p, uint32_t number) {
  RowGroup group;
  p.groups_per_row.divmod(number, group.row, group.index);
  group.col = int64_t(group.index) * p.group_cols;
  group.size = uint32_t(min_of<int64_t>(p.group_cols, p.cols - group.col));
  return group;
}

}  // namespace cleave
