// Quantisation: a matrix of floats becomes one of 8-bit elements and float32 scales,
//
//   q = round((x / smooth) / scale) + zero      so that     x ~ smooth * scale * (q - zero)
//
// with scales that map the largest magnitude of a group to the largest q, or with given scales. The norm of x's rows,
// or of those of x + residual, may take the place of x.
//
//   cleave::QuantizeProblem problem{.rows = 64, .cols = 4096, ...};
//   cleave::plan(problem)->run({.x = x, .q = q, .scale = scale}, stream);
//
// Scaled products take A's rows quantised, and B^T's rows quantised, both contiguous along K.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cleave/gemm.h"

namespace cleave {

/// A norm of rows h, each of `cols` elements, computed in float32 without other roundings:
///
/// | kind       | y                                                        |
/// |------------|----------------------------------------------------------|
/// | rms_norm   | h / sqrt(mean(h^2) + eps) * weight + bias                |
/// | layer_norm | (h - mean(h)) / sqrt(variance(h) + eps) * weight + bias  |
///
/// A missing weight counts as 1, a missing bias as 0.
struct RowNorm {
  Norm kind = Norm::none;
  float eps = 1e-6f;
  bool has_weight = false, has_bias = false;
  bool zero_centered = false;  ///< the stored weight is 1 less, as Gemma's: 1 + weight is used
  DType dtype = DType::bf16;   ///< of weight and bias: f16, bf16, f32
  uint32_t alignment = 16;     ///< of both pointers, in bytes: as MatrixLayout::alignment

  friend bool operator==(const RowNorm&, const RowNorm&) = default;
};

/// What to compute, as a plain value. What shares a scale, and the shape of the scales:
///
/// | granularity   | one scale for                | scale                                      |
/// |---------------|------------------------------|--------------------------------------------|
/// | tensor        | the whole of x               | [1, 1]                                     |
/// | row           | each row                     | [rows, 1]                                  |
/// | block_1x128   | each 128 neighbours of a row | [rows, ceil(cols / 128)]                   |
/// | block_128x128 | each square of 128 by 128    | [ceil(rows / 128), ceil(cols / 128)]       |
struct QuantizeProblem {
  int64_t rows = 0, cols = 0;
  Granularity granularity = Granularity::row;
  MatrixLayout x = {};                         ///< [rows, cols]; f16, bf16, f32; stride_col 1
  MatrixLayout q = {.dtype = DType::i8};       ///< [rows, cols]; i8 or an 8-bit float; stride_col 1
  MatrixLayout scale = {.dtype = DType::f32};  ///< any strides
  bool given_scale = false;                    ///< scale (and zero) are read; else they are computed and written
  bool symmetric = true;                       ///< false, i8 per row or tensor only: q has a zero point
  bool has_smooth = false;                     ///< x is divided, column by column, before anything else
  uint32_t smooth_alignment = 16;              ///< of that pointer, in bytes: as MatrixLayout::alignment

  /// x is [rows, 2 cols], cols columns of gates and then as many of ups, and silu(gate) * up is quantised. For
  /// block_1x128 only.
  bool gated = false;
  bool ue8m0_scale = false;  ///< scales that are found are rounded up to powers of two; symmetric ones

  /// The norm of x's rows is quantised, in the same pass: by row, or in blocks of 1x128. The scale of the whole tensor,
  /// unless it is given, squares of 128x128 and a transpose take a pass before it.
  /// With a residual it is the norm of h = x + residual, which is rounded to the residual's dtype and written as well
  /// (vLLM's fused_add_rms_norm). The order of sums depends on x's columns alone: a row's q does not depend on the
  /// other rows.
  RowNorm norm;
  bool has_residual = false;
  MatrixLayout residual = {}, residual_out = {};  ///< [rows, cols]; both f16, bf16 or f32; stride_col 1
  bool has_normed = false;
  MatrixLayout normed_out = {};  ///< [rows, cols]: the norm, rounded to x's dtype; stride_col 1

  /// Also the transpose, from the same read: q_t[c, r] ~ x[r, c] / scale_t. For blocks only.
  /// block_1x128: scale_t [cols, ceil(rows / 128)] covers 128 neighbours of a *column* of x.
  /// block_128x128: q_t holds q's values, and scale_t [ceil(cols / 128), ceil(rows / 128)] scale's.
  bool has_transpose = false;
  MatrixLayout q_t = {.dtype = DType::i8};       ///< [cols, rows], of q's dtype; stride_col 1
  MatrixLayout scale_t = {.dtype = DType::f32};  ///< any strides

  /// More than 0, block_1x128 with has_transpose only: rows are cut into so many groups, of which
  /// the device knows the bounds, and the transpose is laid out for products with a grouped K. Each
  /// group's rows become columns of q_t that begin at a multiple of 128, so that no scale covers two
  /// groups: q_t [cols, padded_extent(rows, groups)], scale_t [cols, that / 128]. Columns of no
  /// group, the padding, are zeros with scale 0. Strides of scale_t that have its rows as
  /// neighbours suit products best. q and scale are as without groups.
  int64_t groups = 0;
  bool wide_offsets = false;  ///< offsets are int64, else int32

  int device = 0;  ///< CUDA ordinal, or kCpu

  friend bool operator==(const QuantizeProblem&, const QuantizeProblem&) = default;
};

struct MatrixShape {
  int64_t rows, cols;
};

/// Columns enough for `extent` rows that are cut into any `groups`, each of which begins at a
/// multiple of 128. Itself one.
CLEAVE_API int64_t padded_extent(int64_t extent, int64_t groups);

/// Columns of q_t.
CLEAVE_API int64_t extent_t(const QuantizeProblem& problem);

/// The shape of the scales of a [rows, cols] matrix. For its transpose swap rows and cols.
CLEAVE_API MatrixShape scale_shape(Granularity granularity, int64_t rows, int64_t cols);

/// Device pointers (host pointers on the CPU backend), aligned as the problem says. Nothing that is
/// written may overlap anything else, but that residual_out and normed_out may each be x or residual itself.
struct QuantizeArguments {
  const void* x = nullptr;
  void* q = nullptr;
  float* scale = nullptr;         ///< only read if the problem's given_scale
  int32_t* zero = nullptr;        ///< unless symmetric: `rows` contiguous values, or one (tensor)
  const float* smooth = nullptr;  ///< `cols` contiguous values
  const void* weight = nullptr;   ///< of the norm: `cols` contiguous values
  const void* bias = nullptr;     ///< as many
  const void* residual = nullptr;
  void* residual_out = nullptr;
  void* normed_out = nullptr;
  void* q_t = nullptr;
  float* scale_t = nullptr;
  /// `groups` values: where each group's rows end; the first begins at 0, the others where the one
  /// before ends. Read on the device, and clamped to the rows: wrong ones give wrong results, but
  /// no access outside the matrices.
  const void* offsets = nullptr;
  /// `groups` values: where each group's columns of q_t end. The next begins at the next multiple
  /// of 128, as of GroupBounds::aligned_ends with spacing 128.
  int32_t* padded_ends = nullptr;
};

/// Every rule that `problem` breaks, each with the value seen and the remedy. Empty: it can be
/// planned.
CLEAVE_API std::vector<std::string> validate(const QuantizeProblem& problem);

/// An immutable, thread-safe way to run one problem on one device.
///
/// With amax the largest |x| of a group and qmax the largest q (127, 448, 57344): scale = amax /
/// qmax in float32, and q is rounded to nearest even and saturates. Without symmetry the group's
/// range is widened to include 0, scale = range / 255, and zero is what 0 becomes, from -128 to
/// 127. A scale that would be subnormal (a group of zeros, say) is 0, and so are its q and zero. A
/// group with a NaN has scale NaN, and its q are 0 (i8) or NaN. Results are the same in every run
/// and, but for the bits of NaNs, on every device.
///
/// x is read from memory once, but for `tensor` without given scales, which is two launches: the
/// second reads x again, backwards, so that it finds in the L2 cache what the first read last. With
/// groups there are two as well, of which the first reads offsets only. Rows
/// longer than 32768 elements (16384 with `smooth`) are read twice for a `row`'s scale, too.
///
/// With a norm one kernel does it all, but for squares and transposes, which read x again. Its sums are added in
/// another order on the CPU, so results there differ in last bits; on one GPU they are the same in every run.
/// Rows longer than 16384 elements are read again in part, from L2 (8192 where x, residual, weight and bias have
/// more than 8 bytes together for a column; 4096 where they are aligned to single elements).
class CLEAVE_API QuantizePlan : public Plan {
 public:
  virtual void run(const QuantizeArguments& arguments, void* stream) const = 0;

  virtual const QuantizeProblem& problem() const = 0;
};

/// The plan of `problem`, cached: as that of a product (gemm.h).
CLEAVE_API std::shared_ptr<const QuantizePlan> plan(const QuantizeProblem& problem);

}  // namespace cleave
