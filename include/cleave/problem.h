// What to compute, as plain values: a GemmProblem says it, GemmArguments point to the data.
//
// The enumerations (DType, SplitKMode, Activation ...) are in cleave/core/enums.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cleave/conv_layout.h"
#include "cleave/core/api.h"
#include "cleave/core/enums.h"

namespace cleave {

/// Device ordinal of the CPU backend.
inline constexpr int kCpu = -1;

/// Placement of one matrix of a batch. Strides count elements and may be 0 only for dimensions that
/// broadcast (batch). One of stride_row and stride_col must be 1 (a dimension of size 1 may have
/// any stride).
struct MatrixLayout {
  DType dtype = DType::bf16;
  int64_t stride_row = 0;  ///< to be set: the columns, of a packed row-major matrix
  int64_t stride_col = 1;
  int64_t stride_batch = 0;
  uint32_t alignment = 16;  ///< of the base pointer, in bytes: a power of two; 16 stands for "16 or more"

  friend bool operator==(const MatrixLayout&, const MatrixLayout&) = default;
};

/// Where an operand's float32 scales lie. Rows are A's; of B read "columns". Strides count
/// elements.
struct ScaleLayout {
  Scaling kind = Scaling::none;
  uint32_t rows = 1;       ///< block: rows that share a scale, 1 or 128
  int64_t stride_row = 0;  ///< to the next row's (or block of rows') scale; vector: 0 if one serves all
  int64_t stride_k = 0;    ///< block: to the scale of the next 128 elements of K
  int64_t stride_batch = 0;

  friend bool operator==(const ScaleLayout&, const ScaleLayout&) = default;
};

/// How an operand is packed that is a weight of 4 bits. Its MatrixLayout says what elements it is multiplied as, and
/// how they would lie: contiguous along K, with rows (of B, columns) of whole blocks of 64, and so many of those. One
/// matrix of a batch follows another.
struct WeightLayout {
  WeightFormat format = WeightFormat::none;
  bool has_zero = false;  ///< groups have zero points of their own, bytes that lie as their scales do
  int64_t group = 0;      ///< elements of K that share a scale: 16 (nvfp4), 32, 64, a multiple of 128, or all of them
  int64_t scale_stride_k = 0;      ///< elements from a group's scales, one per row, to the next group's
  int64_t scale_stride_batch = 0;  ///< and to the next matrix's; 0: one for all

  friend bool operator==(const WeightLayout&, const WeightLayout&) = default;
};

/// The groups of a grouped product; GemmProblem::batch is their number.
struct GroupLayout {
  Grouping dimension = Grouping::none;
  GroupBounds bounds = GroupBounds::ends;
  bool wide = false;       ///< offsets and sizes are int64, else int32
  int64_t spacing = 1;     ///< aligned_ends: what begins are multiples of; counts: from one group's
                           ///< begin to the next one's
  bool zero_rest = false;  ///< m, n: what of D belongs to no group is zeroed, else left as it is
  /// k, aligned_ends: each group's A is a matrix by itself, [m, room] with room for its size rounded up to
  /// the spacing, K contiguous, one group's behind the other's; and so is B^T. Else rows go through all groups.
  bool apart = false;

  friend bool operator==(const GroupLayout&, const GroupLayout&) = default;
};

/// The most groups of one product: their bounds lie in shared memory.
inline constexpr int64_t kMostGroups = 1024;

class EpilogueFunction;  // cleave/epilogue.h

/// Where an input of an epilogue function lies, or an output beside D. Strides count elements.
struct EpilogueLayout {
  InputShape shape = InputShape::matrix;
  DType dtype = DType::f32;
  Order order = Order::row;  ///< matrix: which dimension is contiguous
  uint8_t alignment = 1;     ///< of the pointer, in bytes: a power of two up to 16
  int64_t stride = 0;        ///< row, column: from one value to the next; matrix: from one line to the next
  int64_t stride_batch = 0;  ///< 0: one for all of the batch

  friend bool operator==(const EpilogueLayout&, const EpilogueLayout&) = default;
};

/// The function that makes D of the sums: D = function(alpha * A @ B + beta * C + bias, inputs). It takes the
/// activation's place.
struct EpilogueProblem {
  const EpilogueFunction* function = nullptr;
  bool gated = false;                                 ///< as the function is: b is [batch, k, 2n], as under swiglu
  EpilogueLayout inputs[kMostEpilogueInputs] = {};    ///< as the function has them
  EpilogueLayout outputs[kMostEpilogueOutputs] = {};  ///< those beside D

  friend bool operator==(const EpilogueProblem& x, const EpilogueProblem& y) {
    if (x.function != y.function || x.gated != y.gated) return false;
    if (x.function == nullptr) return true;
    for (uint32_t i = 0; i < kMostEpilogueInputs; ++i)
      if (!(x.inputs[i] == y.inputs[i])) return false;
    for (uint32_t i = 0; i < kMostEpilogueOutputs; ++i)
      if (!(x.outputs[i] == y.outputs[i])) return false;
    return true;
  }
};

/// What is promised of D's bits. Every mode of today is repeatable, so the first two are one.
enum class Determinism : uint8_t {
  any,
  repeatable,       ///< the same from run to run, on one kind of GPU
  batch_invariant,  ///< a row of D follows from its row of A and from B alone, whatever M, the batch or the groups'
                    ///< sizes are: how K is split does not follow from them. Products, and groups of rows, of an A
                    ///< that is contiguous along K
};

/// A plain value that says what to compute; it holds no pointer to data but what their alignment is. POD:
/// it is the plan cache's key.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  MatrixLayout a = {};  ///< [batch, m, k]
  MatrixLayout b = {};  ///< [batch, k, n]; [batch, k, 2n] under swiglu and gated functions
  MatrixLayout c = {};  ///< [batch, m, n], read if has_c; a float of 16 or 32 bits, or D's type
  MatrixLayout d = {};  ///< [batch, m, n]; must not overlap itself
  bool has_c = false;   ///< C takes part (beta is a run-time value); C may be D exactly
  Bias bias = Bias::none;
  DType bias_dtype = DType::bf16;  ///< a float type, whatever D's is
  int64_t bias_stride_batch = 0;   ///< elements to the next batch entry's (group's) bias
  Activation activation = Activation::none;
  EpilogueProblem epilogue = {};

  ScaleLayout scale_a = {}, scale_b = {};       ///< both none, both vector, or both block; nvfp4: b's alone, a vector
  WeightLayout weights_a = {}, weights_b = {};  ///< only b is packed; a of the same product read the other way
  bool has_zero = false;                        ///< i8: zero_a[row] * zero_b[column] is taken off the integer sum
  bool has_scale_d = false;                     ///< D * (1 / scale_d) is stored
  bool has_amax = false;                        ///< the largest |D|, before scale_d, is gathered
  /// Scaling::block: D, of 8 bits, is divided by scales that are found, one for each row of 128 columns, and these are
  /// written: stride_k leads to the next 128 columns'. As quantize would, of D in float32, by block_1x128.
  ScaleLayout scale_out = {};
  bool ue8m0_scale_out = false;           ///< those scales are rounded up to powers of two
  bool fast_accumulation = false;         ///< fp8: leave sums in the tensor cores (about 14 bits of
                                          ///< mantissa); else float32 takes over every 128 elements of K
  Precision precision = Precision::tf32;  ///< of float32 operands; others have no choice

  /// A promise: no work that may still be under way when the product is enqueued, on its stream or another, writes B
  /// (A). So kernels may load from it before the launches ahead are done; some do.
  bool static_a = false, static_b = false;

  /// Where a dimension is grouped, matrices that Grouping's table shows without groups have a
  /// stride_batch of 0, and m, n or k counts the elements of that dimension of all groups.
  /// Vectors go with their operand: the scales of a grouped m are m values, those of B n per group.
  GroupLayout groups = {};

  /// The matrices of a convolution: rows of x and y are pixels in the order of memory (images,
  /// depth, height, width), columns the channels of a group, stride_batch leads to the next group's.
  /// Rows of w are filters (`stride` apart), columns taps x channels without a gap. So A of fprop is
  /// [pixels of x, channels], B of dgrad [filters, channels] of the first tap.
  ConvLayout conv = {};

  SplitKMode split_k_mode = SplitKMode::automatic;
  int32_t split_k_slices = 0;  ///< 0: the planner chooses
  Determinism deterministic = Determinism::repeatable;
  KernelFamily kernel = KernelFamily::automatic;
  int device = 0;  ///< CUDA ordinal, or kCpu

  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
};

/// An input of an epilogue function: data, or of a scalar the value itself.
struct EpilogueArgument {
  const void* data = nullptr;
  float value = 0.0f;  ///< of a scalar without data
};

/// What `run` needs beside the plan. Device pointers (host pointers on the CPU backend), aligned as
/// the problem says.
struct GemmArguments {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  ///< read if has_c and beta != 0
  void* d = nullptr;
  const void* bias = nullptr;      ///< n (row; 2n under swiglu) or m (column) contiguous values
  float alpha = 1.0f;              ///< of an int32 D a whole number, and 1 without C
  float beta = 0.0f;               ///< of an int32 D a whole number: sums and C are added as int32, and wrap
  const float* scale_a = nullptr;  ///< as the problem's ScaleLayout says; on the device
  const float* scale_b = nullptr;
  const void* weight_scale = nullptr;    ///< as the problem's WeightLayout says; on the device
  const uint8_t* weight_zero = nullptr;  ///< the same
  const int32_t* zero_a = nullptr;       ///< m contiguous values (vLLM's azp), or nullptr for all ones
  const int32_t* zero_b = nullptr;       ///< n contiguous values (vLLM's azp_adj: the columns' sums of B)
  const float* scale_d = nullptr;        ///< one value
  /// Read by the kernel, never by the host, and clamped to the dimension: wrong values give wrong
  /// results, but no access outside the matrices. Sizes: `batch` values; so offsets, but for one
  /// more of indptr.
  const void* group_offsets = nullptr;  ///< every bounds but counts
  const void* group_sizes = nullptr;    ///< starts, counts
  float* scale_out = nullptr;           ///< as the problem's ScaleLayout says
  float* amax = nullptr;                ///< one value, raised to the largest |D|: zero it to start anew
  EpilogueArgument epilogue_inputs[kMostEpilogueInputs] = {};
  void* epilogue_outputs[kMostEpilogueOutputs] = {};
};

}  // namespace cleave
