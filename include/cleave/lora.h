// Low-rank adapters: each row of a batch goes through its own adapter, and the result is added to a layer's output.
//
//   cleave::LoraProblem problem{.rows = 64, .features = 4096, .outputs = 4096, .rank = 16, .adapters = 8, ...};
//   cleave::plan(problem)->run({.x = x, .a = a, .b = b, .offs = offs, .out = y, .scale = 2.0f}, stream);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cleave/gemm.h"

namespace cleave {

inline constexpr int64_t kMostLoraRank = 64;

/// What to compute for the rows of each adapter g, as a plain value: out += scale * (x @ a[g]^T) @ b[g]^T.
///
/// Sums are float32, in an order that depends on the sizes alone. The result of the first product is rounded to the
/// operands' type, and so is out, once.
struct LoraProblem {
  int64_t rows = 0;
  int64_t features = 0;
  int64_t outputs = 0;
  int64_t rank = 1;      ///< from 1 to kMostLoraRank
  int64_t adapters = 1;  ///< at least one
  // f16 or bf16, all of them; stride_col is 1.
  MatrixLayout x;          ///< [rows, features]
  MatrixLayout a;          ///< [adapters, rank, features]
  MatrixLayout b;          ///< [adapters, outputs, rank]
  MatrixLayout out;        ///< [rows, outputs]
  bool wide_offs = false;  ///< int64
  int device = 0;          ///< CUDA ordinal, or kCpu

  friend bool operator==(const LoraProblem&, const LoraProblem&) = default;
};

/// Device pointers (host pointers on the CPU backend). out may overlap nothing else.
struct LoraArguments {
  const void* x = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* offs = nullptr;  ///< [adapters], where each adapter's rows end; rows past the last are left as they are
  void* out = nullptr;
  float scale = 1.0f;
};

/// Every rule that `problem` breaks, each with the value seen and the remedy. Empty: it can be
/// planned.
CLEAVE_API std::vector<std::string> validate(const LoraProblem& problem);

/// An immutable, thread-safe way to run one problem on one device: one launch, without a workspace.
class CLEAVE_API LoraPlan : public Plan {
 public:
  virtual void run(const LoraArguments& arguments, void* stream) const = 0;

  virtual const LoraProblem& problem() const = 0;
};

/// The plan of `problem`, cached: as that of a product (gemm.h).
CLEAVE_API std::shared_ptr<const LoraPlan> plan(const LoraProblem& problem);

}  // namespace cleave
