// The scales of a packed weight's k block, and the zero points, as they lie in its stage: line by line, one for each
// group that has columns of the block. In memory lines may begin within a word of 4 bytes, and whole words are copied:
// a line in the stage has one word more than the tile's rows take, and begins at a multiple of 16 bytes.
#pragma once

#include "cleave/config/gemm_config.h"
#include "cleave/config/output.h"
#include "cleave/core/fast_divmod.h"

namespace cleave {

/// What makes elements of a packed weight. Strides count elements, of the scales as of the zero points.
struct WeightParams {
  const void* scales = nullptr;
  const uint8_t* zeros = nullptr;
  int64_t stride_k = 0;  // from a group of K to the next one
  int64_t stride_batch = 0;
  uint32_t groups = 0;          // of K
  FastDivmod blocks_per_group;  // k blocks, where a group has whole ones
};

/// streamed: whether codes are multiplied as they are, and sums are scaled (weights/line_sum.h).
CLEAVE_HD constexpr bool scales_sums(const GemmConfig& c) {
  return c.family == KernelFamily::streamed && c.weights.format == WeightFormat::int4;
}

/// Otherwise, elements are made as 2^-this of themselves where that saves an instruction each (weights/dequantise.h).
CLEAVE_HD constexpr int32_t weight_exponent(const GemmConfig& c) {
  if (!has_weights(c) || scales_sums(c)) return 0;
  switch (c.operands.a) {
    case DType::bf16:
      return c.weights.format == WeightFormat::int4 ? 27 : 24;
    case DType::e4m3:
      return c.weights.format == WeightFormat::int4 ? 9 : 6;
    case DType::i8:
      return c.weights.format != WeightFormat::int4 ? -1 : c.weights.has_zero ? 0 : -4;
    default:
      return c.weights.format == WeightFormat::nvfp4 ? 7 : 0;
  }
}
CLEAVE_HD constexpr float weight_factor(const GemmConfig& c) {
  const int32_t exponent = weight_exponent(c);
  return exponent < 0 ? 1.0f / float(1 << -exponent) : float(1 << exponent);
}

/// Parts of a warpgroup's sums that are multiplied before they are scaled, as those of elements of 8 bits are: of
/// groups that are shorter than an instruction two in turn, where the tile leaves registers for them.
CLEAVE_HD constexpr uint32_t weight_parts(const GemmConfig& c) {
  return c.weights.group < 32 && c.tile.n <= 64 ? 2 : 1;
}

/// Rows of the weight that make so many of D's.
template <GemmConfig C>
CLEAVE_HD constexpr uint32_t weight_rows(uint32_t rows) {
  return gates_rows(C) ? 2 * rows : rows;
}

/// Bytes of a scale.
CLEAVE_HD constexpr uint32_t weight_scale_bytes(const GemmConfig& c) {
  return size_of(weight_scale_type(c.weights.format, c.operands.a));
}

/// Lines of a k block.
CLEAVE_HD constexpr uint32_t weight_lines(const GemmConfig& c) {
  return c.tile.k / c.weights.group;
}

/// Words of 4 bytes of a line: first the scales', then the zero points'.
CLEAVE_HD constexpr uint32_t weight_scale_words(const GemmConfig& c) {
  return round_up(c.tile.m * weight_scale_bytes(c) / 4 + 1, 4u);
}
CLEAVE_HD constexpr uint32_t weight_line_words(const GemmConfig& c) {
  return weight_scale_words(c) + (c.weights.has_zero ? round_up(c.tile.m / 4 + 1, 4u) : 0);
}

/// Bytes in one stage.
CLEAVE_HD constexpr uint32_t weight_line_bytes(const GemmConfig& c) {
  return has_weights(c) ? weight_lines(c) * weight_line_words(c) * 4 : 0;
}

/// The group of K whose scales are a k block's first line; the others follow. The last k block may have lines past the
/// last group: B is zero there, so that any scales do that are numbers.
template <GemmConfig C>
CLEAVE_HD uint32_t first_weight_group(const WeightParams& weights, uint32_t block) {
  return C.weights.group < C.tile.k ? block * weight_lines(C) : weights.blocks_per_group.quotient(block);
}

}  // namespace cleave
