// Mixtures of experts: from the experts that every token chose to rows sorted by expert, which
// grouped products take, and back.
//
// A token chooses top_k experts; each choice is a slot, and slots count token by token. Sorting
// gives every slot a row: the slots of expert 0 first, in their order, then those of expert 1, and
// so on, and last those that are dropped, whose id is negative or no expert's.
//
//   cleave::MoeProblem problem{.operation = cleave::MoeOperation::permute, .tokens = 4096, ...};
//   cleave::plan(problem)->run({.ids = ids, .offsets = offsets, ...}, stream);
//
// Everything stays on the device: nothing here waits, and a captured graph is right for whatever
// ids it finds when it is replayed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cleave/gemm.h"

namespace cleave {

/// | operation        | reads                                | writes                           |
/// |------------------|--------------------------------------|----------------------------------|
/// | offsets          | ids                                  | offsets                          |
/// | sort             | ids                                  | offsets, indices                 |
/// | permute          | ids, tokens                          | offsets, indices, rows           |
/// | gather           | indices, tokens                      | rows                             |
/// | combine          | indices, rows, perhaps weights       | tokens                           |
/// | combine_backward | indices, rows, weights, tokens       | rows_grad, weights_grad          |
///
/// offsets: where each expert's rows end: the group offsets of a grouped product, as
///     GroupBounds::ends.
/// sort: also every row's slot.
/// permute: also the rows: of every slot a copy of its token, zeros for the dropped.
/// gather: the rows again, of other tokens, by a permutation that is known.
/// combine: the tokens: each the sum of its slots' rows, times their weights if there are any, in
///     the order of the slots and in float32. Dropped slots add nothing.
/// combine_backward: the gradients of combine's rows and weights; `tokens` is that of its tokens.
///
/// With `scaled`, rows have 8 bits and a scale for each 128 columns: permute and gather quantise the tokens, as
/// `quantize` does in blocks of 1x128 (quantize.h), and write `row_scales`, zeros for the dropped.
enum class MoeOperation : uint8_t { offsets, sort, permute, gather, combine, combine_backward };

/// A plain value that says what to compute.
struct MoeProblem {
  MoeOperation operation = MoeOperation::offsets;
  int64_t tokens = 0;
  int64_t top_k = 1;                 ///< slots of a token; tokens * top_k is below 2^31
  int64_t experts = 0;               ///< from 1 to kMostGroups, where ids are read
  bool wide_ids = false;             ///< ids are int64, else int32
  int64_t columns = 0;               ///< of tokens and rows, up to 16 MiB; equal dtypes, stride_col 1
  MatrixLayout token = {};           ///< [tokens, columns]; of any dtype where it is copied, else of floats
  MatrixLayout row = {};             ///< [tokens * top_k, columns]
  MatrixLayout row_grad = {};        ///< [tokens * top_k, columns]
  bool scaled = false;               ///< permute, gather: rows of i8, e4m3 or e5m2, tokens of wide floats
  bool has_weights = false;          ///< combine; always for combine_backward
  DType weights_dtype = DType::f32;  ///< f16, bf16 or f32
  int device = 0;                    ///< CUDA ordinal, or kCpu

  friend bool operator==(const MoeProblem&, const MoeProblem&) = default;
};

/// Device pointers (host pointers on the CPU backend), aligned as the problem says, or to their
/// type. Vectors are contiguous. Nothing that is written may overlap anything else.
struct MoeArguments {
  const void* ids = nullptr;   ///< [tokens, top_k]
  int32_t* offsets = nullptr;  ///< [experts]
  /// [tokens * top_k], by row: its slot, token * top_k + choice; of a dropped one ~slot, which is
  /// negative. Where it is read and no such permutation, results are unspecified, but nothing
  /// outside the arrays is touched.
  int32_t* indices = nullptr;
  void* tokens = nullptr;
  void* rows = nullptr;
  const void* weights = nullptr;  ///< [tokens, top_k]
  void* rows_grad = nullptr;
  void* weights_grad = nullptr;  ///< [tokens, top_k]
  float* row_scales = nullptr;   ///< [tokens * top_k, columns / 128], rounded up
};

/// Every rule that `problem` breaks, each with the value seen and the remedy. Empty: it can be
/// planned.
CLEAVE_API std::vector<std::string> validate(const MoeProblem& problem);

/// An immutable, thread-safe way to run one problem on one device.
///
/// Results are the same in every run, and on every device but for weights_grad, whose sums differ
/// in their last bits. `offsets` and `sort` are one launch.
class CLEAVE_API MoePlan : public Plan {
 public:
  virtual void run(const MoeArguments& arguments, void* stream) const = 0;

  virtual const MoeProblem& problem() const = 0;
};

/// The plan of `problem`, cached: as that of a product (gemm.h).
CLEAVE_API std::shared_ptr<const MoePlan> plan(const MoeProblem& problem);

}  // namespace cleave
