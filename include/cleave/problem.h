// What to compute, as plain values: GemmProblem describes it, GemmArguments points to the data.
//
// The enumerations (DType, SplitKMode ...) are in cleave/core/enums.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cleave/conv_layout.h"
#include "cleave/core/api.h"
#include "cleave/core/enums.h"

namespace cleave {

/// Device ordinal of the CPU backend.
inline constexpr int kCpu = -1;

/// Where a matrix, or each matrix of a batch, lies. Strides count elements; only stride_batch may be 0, to share one
/// matrix. One of stride_row and stride_col must be 1, except along dimensions of size 1.
struct MatrixLayout {
  DType dtype = DType::bf16;
  int64_t stride_row = 0;  ///< must be set: the number of columns for a packed row-major matrix
  int64_t stride_col = 1;
  int64_t stride_batch = 0;
  uint32_t alignment = 16;  ///< of the base pointer, in bytes: a power of two; 16 stands for "16 or more"

  friend bool operator==(const MatrixLayout&, const MatrixLayout&) = default;
};

/// Where an operand's float32 scales lie. "Rows" are A's; for B read "columns". Strides count elements.
struct ScaleLayout {
  Scaling kind = Scaling::none;
  uint32_t rows = 1;       ///< block: rows that share a scale, 1 or 128
  int64_t stride_row = 0;  ///< to the next row's (or block of rows') scale; vector: 0 if one serves all
  int64_t stride_k = 0;    ///< block: to the scale of the next 128 elements of K
  /// To the next matrix's scales. A's, where groups of m have counts: how much farther than where its rows go on.
  int64_t stride_batch = 0;

  friend bool operator==(const ScaleLayout&, const ScaleLayout&) = default;
};

/// How a 4-bit weight is packed. The operand's MatrixLayout has the dtype that it is multiplied in, and describes the
/// unpacked matrix: contiguous along K, with K and the number of rows (for B, columns) rounded up to blocks of 64.
/// The matrices of a batch follow each other.
struct WeightLayout {
  WeightFormat format = WeightFormat::none;
  bool has_zero = false;  ///< every group has a zero point, a byte; they lie as the scales do
  int64_t group = 0;      ///< elements of K that share a scale: 16 (nvfp4), 32, 64, a multiple of 128, or all of them
  int64_t scale_stride_k = 0;      ///< elements from a group's scales, one per row, to the next group's
  int64_t scale_stride_batch = 0;  ///< to the next matrix's; 0: all share the scales

  friend bool operator==(const WeightLayout&, const WeightLayout&) = default;
};

/// The groups of a grouped product; GemmProblem::batch is their number.
struct GroupLayout {
  Grouping dimension = Grouping::none;
  GroupBounds bounds = GroupBounds::ends;
  bool wide = false;       ///< offsets and sizes are int64, else int32
  int64_t spacing = 1;     ///< aligned_ends: groups begin at multiples of it; counts: the distance from
                           ///< one group's begin to the next one's
  bool zero_rest = false;  ///< m, n: zero the parts of D that belong to no group, instead of leaving them
  int64_t expected_m = 0;  ///< m: rows of a group that kernels are chosen for, on average; 0: all there is room for
  /// k, aligned_ends: each group's A is a matrix of its own, [m, room], K contiguous, where room is the group's size
  /// rounded up to the spacing; the matrices follow each other, and so do those of B^T. Otherwise rows run through all
  /// groups.
  bool apart = false;

  friend bool operator==(const GroupLayout&, const GroupLayout&) = default;
};

/// Rows of A that a list names, where m is grouped: row i of the product is row list[i] / divisor of A, which has
/// `rows` of them, and scales for these. Tokens of a mixture of experts are such rows, and their choices, `divisor` of
/// each token, the list. What it names that A does not have, negative numbers among it, is a row of zeros.
struct GatherLayout {
  bool given = false;
  int64_t rows = 0;
  int64_t divisor = 1;

  friend bool operator==(const GatherLayout&, const GatherLayout&) = default;
};

/// The most groups of one product, since their bounds lie in shared memory.
inline constexpr int64_t kMostGroups = 1024;

class EpilogueFunction;  // cleave/epilogue.h

/// Where an input of an epilogue function, or an output beside D, lies. Strides count elements.
struct EpilogueLayout {
  InputShape shape = InputShape::matrix;
  DType dtype = DType::f32;
  Order order = Order::row;  ///< matrix: which dimension is contiguous
  uint8_t alignment = 1;     ///< of the pointer, in bytes: a power of two up to 16
  int64_t stride = 0;        ///< row, column: from one value to the next; matrix: from one line to the next
  int64_t stride_batch = 0;  ///< 0: the whole batch shares it

  friend bool operator==(const EpilogueLayout&, const EpilogueLayout&) = default;
};

/// An epilogue function, if there is one: D = function(alpha * A @ B + beta * C + bias, inputs). An activation is one,
/// too: epilogue_of(Activation::relu), in cleave/epilogue.h.
struct EpilogueProblem {
  const EpilogueFunction* function = nullptr;
  Gates gates = Gates::none;                          ///< the function's; with gates b is [batch, k, 2n]
  EpilogueLayout inputs[kMostEpilogueInputs] = {};    ///< in the function's order
  EpilogueLayout outputs[kMostEpilogueOutputs] = {};  ///< those beside D

  friend bool operator==(const EpilogueProblem& x, const EpilogueProblem& y) {
    if (x.function != y.function || x.gates != y.gates) return false;
    if (x.function == nullptr) return true;
    for (uint32_t i = 0; i < kMostEpilogueInputs; ++i)
      if (!(x.inputs[i] == y.inputs[i])) return false;
    for (uint32_t i = 0; i < kMostEpilogueOutputs; ++i)
      if (!(x.outputs[i] == y.outputs[i])) return false;
    return true;
  }
};

/// What is promised about the bits of D. All current modes are repeatable, so the first two are the same today.
enum class Determinism : uint8_t {
  any,
  repeatable,       ///< the same from run to run, on one kind of GPU
  batch_invariant,  ///< a row of D depends on its row of A and on B alone, not on M, the batch or the groups' sizes,
                    ///< which therefore do not decide how K is split. For products, and groups of rows, whose A is
                    ///< contiguous along K
  k_order,          ///< batch_invariant, and an element depends on its row of A and its column of B alone, whatever N
                    ///< is: K is summed as one slice. Integers' sums, which have no order, may be split nevertheless
};

/// What to compute, as a plain value. It holds no pointers to data, only their alignment. POD, because it is the key of
/// the plan cache.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  MatrixLayout a = {};  ///< [batch, m, k]
  MatrixLayout b = {};  ///< [batch, k, n]; [batch, k, 2n] under gated functions
  MatrixLayout c = {};  ///< [batch, m, n], read if has_c; a 16-bit or 32-bit float, or D's type
  MatrixLayout d = {};  ///< [batch, m, n]; must not overlap itself
  bool has_c = false;   ///< beta * C is added (beta is a run-time value); C may be D exactly
  Bias bias = Bias::none;
  DType bias_dtype = DType::bf16;  ///< a float type, whatever D's is
  int64_t bias_stride_batch = 0;   ///< elements to the next batch entry's (group's) bias
  EpilogueProblem epilogue = {};

  /// Both none, both vector, or both block. Beside a packed weight vectors: nvfp4's of b, and those of an a of 8 bits.
  ScaleLayout scale_a = {}, scale_b = {};
  WeightLayout weights_a = {}, weights_b = {};  ///< b may be packed; a is packed where the same product is transposed
  bool has_zero = false;                        ///< i8: zero_a[row] * zero_b[column] is subtracted from the integer sum
  bool has_scale_d = false;                     ///< D * (1 / scale_d) is stored
  bool has_amax = false;                        ///< amax is raised to the largest |D|, before scale_d
  /// Scaling::block quantises D to 8 bits: scales are computed for every 128 columns of a row, as quantize() computes
  /// them from D in float32 by block_1x128, and written with stride_k from one 128 columns to the next.
  ScaleLayout scale_out = {};
  bool ue8m0_scale_out = false;           ///< those scales are rounded up to powers of two
  bool fast_accumulation = false;         ///< fp8: leave sums in the tensor cores (about 14 bits of
                                          ///< mantissa); else float32 takes over every 128 elements of K
  Precision precision = Precision::tf32;  ///< of float32 operands; others have no choice

  /// A promise that no work which may still be running when the product is enqueued, on any stream, writes A (B).
  /// Kernels may then load it before the launches ahead are done, and some do.
  bool static_a = false, static_b = false;

  /// The grouped dimension, m, n or k, counts the elements of all groups, and matrices that Grouping's table shows
  /// without groups have a stride_batch of 0. Vectors follow their operand: with m grouped, A has m scales, and B has n
  /// per group.
  GroupLayout groups = {};

  /// m, which is grouped, counts the list's rows.
  GatherLayout gather = {};

  /// The matrices of a convolution. Rows of x and y are pixels in memory order (images, depth, height, width), columns
  /// are the channels of a group, and stride_batch leads to the next group. Rows of w are filters, at any distance;
  /// columns are taps x channels without gaps. So A of fprop is [pixels of x, channels], and B of dgrad is [filters,
  /// channels] of the first tap.
  ConvLayout conv = {};

  SplitKMode split_k_mode = SplitKMode::automatic;
  int32_t split_k_slices = 0;  ///< 0: the planner chooses
  Determinism deterministic = Determinism::repeatable;
  KernelFamily kernel = KernelFamily::automatic;
  int device = 0;  ///< CUDA ordinal, or kCpu

  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
};

class Group;  // cleave/group.h

/// An input of an epilogue function: a pointer, or for a scalar the value itself.
struct EpilogueArgument {
  const void* data = nullptr;
  float value = 0.0f;  ///< used for a scalar without data
};

/// The arguments of one run. Device pointers (host pointers on the CPU backend), aligned as the problem says.
struct GemmArguments {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  ///< read if has_c and beta != 0
  void* d = nullptr;
  const void* bias = nullptr;      ///< n (row; 2n under a gate) or m (column) contiguous values
  float alpha = 1.0f;              ///< for an int32 D a whole number, and 1 without C
  float beta = 0.0f;               ///< for an int32 D a whole number: sums and C are added as int32, and wrap
  const float* scale_a = nullptr;  ///< as the problem's ScaleLayout says; on the device
  const float* scale_b = nullptr;
  const void* weight_scale = nullptr;    ///< as the problem's WeightLayout says; on the device
  const uint8_t* weight_zero = nullptr;  ///< the same
  const int32_t* zero_a = nullptr;       ///< m contiguous values (vLLM's azp), or nullptr for all ones
  const int32_t* zero_b = nullptr;       ///< n contiguous values (vLLM's azp_adj: the columns' sums of B)
  const float* scale_d = nullptr;        ///< one value
  /// Read by the kernel, never by the host, and clamped to the dimension: wrong values give wrong results, but no
  /// access outside the matrices. `batch` values each; indptr has one more.
  const void* group_offsets = nullptr;  ///< every bounds but counts
  const void* group_sizes = nullptr;    ///< starts, counts
  /// m values, read by the kernel, never by the host.
  const int32_t* gather = nullptr;
  float* scale_out = nullptr;  ///< as the problem's ScaleLayout says
  float* amax = nullptr;       ///< one value, raised to the largest |D|: zero it to start anew
  EpilogueArgument epilogue_inputs[kMostEpilogueInputs] = {};
  void* epilogue_outputs[kMostEpilogueOutputs] = {};
  const Group* group = nullptr;  ///< of a product that is summed over ranks itself, and how they name it
  std::string_view call = {};
};

}  // namespace cleave
