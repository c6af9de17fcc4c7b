#include "operands/scales.h"

#include "cleave/core/math.h"
#include "operands/refuse.h"

namespace cleave {
namespace {

/// Scales as those of A are: [batch, rows, ks]. Those of B, seen so, are transposed.
struct Grid {
  int64_t rows = 1, ks = 1, batch = 1;
  int64_t stride_row = 0, stride_k = 0, stride_batch = 0;
};

Grid grid_of(const Operand& v, bool transposed) {
  Grid grid;
  if (v.ndim == 0) return grid;
  if (v.ndim == 1) {
    grid.rows = v.shape[0];
    grid.stride_row = v.stride[0];
    return grid;
  }
  const int row = transposed ? v.ndim - 1 : v.ndim - 2;
  const int k = transposed ? v.ndim - 2 : v.ndim - 1;
  grid.rows = v.shape[row];
  grid.stride_row = v.stride[row];
  grid.ks = v.shape[k];
  grid.stride_k = v.stride[k];
  if (v.ndim == 3) {
    grid.batch = v.shape[0];
    grid.stride_batch = v.stride[0];
  }
  return grid;
}

/// A dimension of one element has no stride to speak of.
int64_t stride(int64_t size, int64_t stride) {
  return size > 1 ? stride : 0;
}

/// The scales of an operand with `rows` rows and `k` elements of K.
struct Fit {
  Grid grid;
  int64_t rows, row_blocks, k_blocks;

  Fit(const Operand& view, bool transposed, int64_t rows, int64_t k)
      : grid(grid_of(view, transposed)),
        rows(rows),
        row_blocks(ceil_div(rows, int64_t(kScaleBlock))),
        k_blocks(ceil_div(k, int64_t(kScaleBlock))) {}

  bool vector() const { return grid.ks == 1 && (grid.rows == 1 || grid.rows == rows); }
  bool block() const {
    return grid.ks == k_blocks && (grid.rows == rows || grid.rows == row_blocks);
  }

  ScaleLayout layout(Scaling kind) const {
    return {.kind = kind,
            .rows = kind == Scaling::vector || grid.rows == rows ? 1 : kScaleBlock,
            .stride_row = stride(grid.rows, grid.stride_row),
            .stride_k = stride(grid.ks, grid.stride_k),
            .stride_batch = stride(grid.batch, grid.stride_batch)};
  }
};

[[noreturn]] void refuse_a(const Operand& view, const Fit& fit) {
  refuse_value(
      "scale_a is {}; it must be one value, one per row of a ({},) or ({}, 1), or one per block of "
      "128 elements of K ({}, {}) or ({}, {})",
      shape_text(view), fit.rows, fit.rows, fit.rows, fit.k_blocks, fit.row_blocks, fit.k_blocks);
}

[[noreturn]] void refuse_b(const Operand& view, const Fit& fit) {
  refuse_value(
      "scale_b is {}; it must be one value, one per column of b ({},) or (1, {}), or one per block "
      "of 128 elements of K ({}, {}) or ({}, {})",
      shape_text(view), fit.rows, fit.rows, fit.k_blocks, fit.rows, fit.k_blocks, fit.row_blocks);
}

void check_batch(const Operand& view, const Fit& fit, const char* name, int64_t batch) {
  if (fit.grid.batch == 1 || fit.grid.batch == batch) return;
  refuse_value("{} is {}; its batch must be {} or 1", name, shape_text(view), batch);
}

}  // namespace

void place_scales(const Operand& scale_a, const Operand& scale_b, GemmProblem& problem) {
  const Fit a(scale_a, false, problem.m, problem.k);
  const Fit b(scale_b, true, problem.n, problem.k);
  if (!a.vector() && !a.block()) refuse_a(scale_a, a);
  if (!b.vector() && !b.block()) refuse_b(scale_b, b);
  check_batch(scale_a, a, "scale_a", problem.batch);
  check_batch(scale_b, b, "scale_b", problem.batch);
  Scaling kind = Scaling::block;
  if (a.vector() && b.vector()) {
    kind = Scaling::vector;
  } else if (!a.block() || !b.block()) {
    refuse_value(
        "scale_a is {} and scale_b is {}: one scales blocks of K, the other does not; scale both "
        "in blocks, or neither",
        shape_text(scale_a), shape_text(scale_b));
  }
  problem.scale_a = a.layout(kind);
  problem.scale_b = b.layout(kind);
}

}  // namespace cleave
