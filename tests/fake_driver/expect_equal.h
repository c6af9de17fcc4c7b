// Whether two launches pass the same parameters, part by part.
#pragma once

#include <gtest/gtest.h>

#include "cleave/config/gemm_params.h"
#include "cleave/reduce/reduce_params.h"

namespace cleave {

inline void expect_equal(const char* what, const TensorMap& x, const TensorMap& y) {
  for (int i = 0; i < 16; ++i) EXPECT_EQ(x.words[i], y.words[i]) << what << " word " << i;
}

inline void expect_equal(const FastDivmod& x, const FastDivmod& y) {
  EXPECT_EQ(x.divisor, y.divisor);
  EXPECT_EQ(x.multiplier, y.multiplier);
  EXPECT_EQ(x.shift, y.shift);
}

inline void expect_equal(const EvenPartition& x, const EvenPartition& y) {
  EXPECT_EQ(x.base, y.base);
  EXPECT_EQ(x.extra, y.extra);
}

/// `k_grouped`: what a schedule says of K is then not used.
inline void expect_equal(const Schedule& x, const Schedule& y, bool k_grouped) {
  expect_equal(x.raster.per_batch, y.raster.per_batch);
  expect_equal(x.raster.per_band, y.raster.per_band);
  expect_equal(x.raster.width, y.raster.width);
  expect_equal(x.raster.last_width, y.raster.last_width);
  EXPECT_EQ(x.raster.full_bands, y.raster.full_bands);
  EXPECT_EQ(x.raster.bands_along_m, y.raster.bands_along_m);
  EXPECT_EQ(x.tiles, y.tiles);
  EXPECT_EQ(x.tiles_across, y.tiles_across);
  EXPECT_EQ(x.slices, y.slices);
  EXPECT_EQ(x.slices_per_cluster, y.slices_per_cluster);
  EXPECT_EQ(x.clusters_per_tile, y.clusters_per_tile);
  expect_equal(x.tiles_divmod, y.tiles_divmod);
  EXPECT_EQ(x.stream_tiles, y.stream_tiles);
  if (k_grouped) return;
  EXPECT_EQ(x.k_blocks, y.k_blocks);
  expect_equal(x.slice_partition, y.slice_partition);
  expect_equal(x.stream_partition, y.stream_partition);
  expect_equal(x.k_blocks_divmod, y.k_blocks_divmod);
}

inline void expect_equal(const GroupParams& x, const GroupParams& y) {
  EXPECT_EQ(x.offsets, y.offsets);
  EXPECT_EQ(x.sizes, y.sizes);
  EXPECT_EQ(x.bounds, y.bounds);
  EXPECT_EQ(x.wide, y.wide);
  EXPECT_EQ(x.zero_rest, y.zero_rest);
  EXPECT_EQ(x.count, y.count);
  EXPECT_EQ(x.spacing, y.spacing);
  EXPECT_EQ(x.extent, y.extent);
}

inline void expect_equal(const FunctionOperand& x, const FunctionOperand& y, bool batched) {
  EXPECT_EQ(x.data, y.data);
  EXPECT_EQ(x.value, y.value);
  EXPECT_EQ(x.stride, y.stride);
  if (batched) {
    EXPECT_EQ(x.batch_stride, y.batch_stride);
  }
}

/// `batched`: else the strides of a batch do not matter.
inline void expect_equal(const EpilogueParams& x, const EpilogueParams& y, bool batched) {
  EXPECT_EQ(x.alpha, y.alpha);
  EXPECT_EQ(x.beta, y.beta);
  EXPECT_EQ(x.d, y.d);
  EXPECT_EQ(x.c, y.c);
  EXPECT_EQ(x.bias, y.bias);
  EXPECT_EQ(x.d_stride, y.d_stride);
  if (x.c != nullptr) {
    EXPECT_EQ(x.c_stride, y.c_stride);
  }
  EXPECT_EQ(x.zero_a, y.zero_a);
  EXPECT_EQ(x.zero_b, y.zero_b);
  EXPECT_EQ(x.scale_d, y.scale_d);
  EXPECT_EQ(x.amax, y.amax);
  for (uint32_t i = 0; i < kMostEpilogueInputs; ++i) expect_equal(x.inputs[i], y.inputs[i], batched);
  for (uint32_t i = 0; i < kMostEpilogueOutputs; ++i) expect_equal(x.outputs[i], y.outputs[i], batched);
  if (!batched) return;
  EXPECT_EQ(x.d_batch_stride, y.d_batch_stride);
  if (x.c != nullptr) {
    EXPECT_EQ(x.c_batch_stride, y.c_batch_stride);
  }
  EXPECT_EQ(x.bias_batch_stride, y.bias_batch_stride);
}

inline void expect_equal(const ProblemSize& x, const ProblemSize& y) {
  EXPECT_EQ(x.m, y.m);
  EXPECT_EQ(x.n, y.n);
  EXPECT_EQ(x.k, y.k);
}

inline void expect_equal(const OperandParams& x, const OperandParams& y, bool batched) {
  EXPECT_EQ(x.data, y.data);
  EXPECT_EQ(x.stride, y.stride);
  if (!batched) return;
  EXPECT_EQ(x.batch_stride, y.batch_stride);
}

inline void expect_equal(const ScaleParams& x, const ScaleParams& y, bool batched) {
  EXPECT_EQ(x.data, y.data);
  EXPECT_EQ(x.stride_row, y.stride_row);
  EXPECT_EQ(x.stride_k, y.stride_k);
  if (!batched) return;
  EXPECT_EQ(x.stride_batch, y.stride_batch);
}

/// How partial results are joined.
inline void expect_equal(const ReduceParams& x, const ReduceParams& y) {
  for (uint32_t i = 0; i < kMostEpilogueOutputs; ++i) {
    const PartialResults &of_x = x.outputs[i], &of_y = y.outputs[i];
    EXPECT_EQ(of_x.partials, of_y.partials);
    EXPECT_EQ(of_x.results, of_y.results);
    EXPECT_EQ(of_x.reduction, of_y.reduction);
    EXPECT_EQ(of_x.joins_entries, of_y.joins_entries);
    EXPECT_EQ(of_x.entries, of_y.entries);
    EXPECT_EQ(of_x.units, of_y.units);
    EXPECT_EQ(of_x.lines, of_y.lines);
    EXPECT_EQ(of_x.units_of_step, of_y.units_of_step);
    EXPECT_EQ(of_x.entry_stride, of_y.entry_stride);
    EXPECT_EQ(of_x.result_stride, of_y.result_stride);
    EXPECT_EQ(of_x.result_entry_stride, of_y.result_entry_stride);
  }
  expect_equal(x.groups, y.groups);
  EXPECT_EQ(x.group_step, y.group_step);
}

}  // namespace cleave
