// The sum over ranks of their partial results: what ends a product whose K is dealt to GPUs, as the fixup ends split-K.
//
//   cleave::FoldProblem problem{.ranks = 2, .rows = 16, .columns = 8192, ...};
//   cleave::plan(problem)->run({.partials = {p0, p1}, .d = d, .group = group.get(), .call = "layer 3"}, stream);
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/gemm.h"
#include "cleave/group.h"

namespace cleave {

inline constexpr int64_t kMostFoldedRanks = 16;

/// A plain value that says what to compute: D = function(((p0 + p1) + p2 ...) + C + bias) / scale_d, in float32 up to
/// D's rounding, in this order. The sum of int32 partial results is int32, times scale_a * scale_b, which are those of
/// all of K: the bits of one GPU's product. A function of gates joins two columns of the sum, as in a product.
struct FoldProblem {
  int64_t ranks = 2;      ///< partial results, 1 to kMostFoldedRanks
  int64_t rows = 0;       ///< of D, on this rank
  int64_t most_rows = 0;  ///< of the rank that has most, which all ranks of a group say; without a group, `rows`
  int64_t columns = 0;    ///< of the sum
  // Matrices of [rows, columns], D under gates of half the columns; stride_col is 1.
  /// Each partial result; f16, bf16, f32; i32: of int8 operands, exact, and scaled when added up.
  MatrixLayout partial;
  ScaleLayout scale_a = {}, scale_b = {};  ///< i32: of the rows and columns of the sum; none, or vector
  bool has_c = false;
  MatrixLayout c;  ///< f16, bf16, f32
  bool has_bias = false;
  DType bias = DType::f32;       ///< [columns]; f16, bf16, f32
  bool has_scale_d = false;      ///< of a D of 8 bits
  ScaleLayout scale_out = {};    ///< Scaling::block: D's scales are found and written, as GemmProblem::scale_out is
  bool ue8m0_scale_out = false;  ///< these are rounded up to powers of two
  MatrixLayout d;
  /// It has neither inputs nor further outputs, and without gates takes a c: epilogue_of(Activation::swiglu).function,
  /// say.
  const EpilogueFunction* function = nullptr;
  /// All ranks of the group make this same sum, and on GPUs each reads its own partial result alone, which it sends to
  /// the others: a trip less where there is little of it. can_push says of what.
  bool pushed = false;
  /// And in the order in which a product that adds up itself sends it, which other ranks may have.
  bool in_strips = false;
  int device = 0;  ///< CUDA ordinal, or kCpu

  friend bool operator==(const FoldProblem&, const FoldProblem&) = default;
};

/// Device pointers (host pointers on the CPU backend). d may be c, and overlap nothing else.
struct FoldArguments {
  const void* partials[kMostFoldedRanks] = {};  ///< of the ranks in order, in any rank's staging or elsewhere
  const float *scale_a = nullptr, *scale_b = nullptr;
  const void* c = nullptr;
  const void* bias = nullptr;
  const float* scale_d = nullptr;
  float* scale_out = nullptr;
  void* d = nullptr;
  /// Waits first for all ranks' streams, as Group::barrier does. nullptr: the partial results are there.
  const Group* group = nullptr;
  std::string_view call;  ///< as of Group::barrier
};

/// Whether a sum may be `pushed`: up to 8 ranks, floats in rows of whole 16 bytes, of 2 MiB at most for each rank (with
/// more than 2 ranks 1 MiB), and a D that is aligned as they are.
CLEAVE_API bool can_push(const FoldProblem& problem);

/// Whether a pushed sum may be `in_strips`: up to 64 rows, and multiples of 64 columns.
CLEAVE_API bool can_strip(const FoldProblem& problem);

/// Every rule that `problem` breaks, each with the value seen and the remedy. Empty: it can be planned.
CLEAVE_API std::vector<std::string> validate(const FoldProblem& problem);

/// An immutable, thread-safe way to run one problem on one device: one launch, without a workspace.
class CLEAVE_API FoldPlan : public Plan {
 public:
  virtual void run(const FoldArguments& arguments, void* stream) const = 0;

  virtual const FoldProblem& problem() const = 0;
};

/// The plan of `problem`, cached: as that of a product (gemm.h).
CLEAVE_API std::shared_ptr<const FoldPlan> plan(const FoldProblem& problem);

}  // namespace cleave
