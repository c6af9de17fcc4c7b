#include "operands/scales.h"

#include "base/refuse.h"
#include "cleave/core/math.h"
#include "operands/gemm_operands.h"
#include "problem/placement.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// Scales as those of A are: [batch, rows, ks]. Those of B, seen so, are transposed. `by_group`: of
/// two dimensions the first is the batch.
struct ScaleGrid {
  int64_t rows = 1, ks = 1, batch = 1;
  int64_t stride_row = 0, stride_k = 0, stride_batch = 0;
};

ScaleGrid grid_of(const Operand& v, bool transposed, bool by_group) {
  ScaleGrid grid;
  const auto read = [&](int dimension, int64_t& size, int64_t& stride) {
    size = v.shape[dimension];
    stride = v.stride[dimension];
  };
  const bool vectors = v.ndim == 1 || (v.ndim == 2 && by_group);
  if (v.ndim == 3 || (v.ndim == 2 && by_group)) read(0, grid.batch, grid.stride_batch);
  if (vectors) read(v.ndim - 1, grid.rows, grid.stride_row);
  if (v.ndim == 0 || vectors) return grid;
  read(transposed ? v.ndim - 1 : v.ndim - 2, grid.rows, grid.stride_row);
  read(transposed ? v.ndim - 2 : v.ndim - 1, grid.ks, grid.stride_k);
  return grid;
}

/// A dimension of one element has no stride to speak of.
int64_t stride(int64_t size, int64_t stride) {
  return size > 1 ? stride : 0;
}

/// The scales of an operand with `rows` rows and `k` elements of K.
struct Fit {
  ScaleGrid grid;
  int64_t rows, row_blocks, k_blocks;

  Fit(const Operand& view, bool transposed, bool by_group, int64_t rows, int64_t k)
      : grid(grid_of(view, transposed, by_group)),
        rows(rows),
        row_blocks(ceil_div(rows, int64_t(kScaleBlock))),
        k_blocks(ceil_div(k, int64_t(kScaleBlock))) {}

  bool vector() const { return grid.ks == 1 && (grid.rows == 1 || grid.rows == rows); }
  bool block() const { return grid.ks == k_blocks && (grid.rows == rows || grid.rows == row_blocks); }

  ScaleLayout layout(Scaling kind) const {
    return {.kind = kind,
            .rows = kind == Scaling::vector || grid.rows == rows ? 1 : kScaleBlock,
            .stride_row = stride(grid.rows, grid.stride_row),
            .stride_k = stride(grid.ks, grid.stride_k),
            .stride_batch = stride(grid.batch, grid.stride_batch)};
  }
};

/// True if no block of K belongs to two groups.
bool groups_begin_with_blocks(const GroupLayout& groups) {
  return groups.dimension == Grouping::k && groups.spacing % kScaleBlock == 0;
}

/// The words for a shape of scales, of which `rows` and `ks` are given as those of A are.
class Shapes {
 public:
  Shapes(bool transposed, int64_t groups) : transposed_(transposed), groups_(groups) {}

  std::string vector(int64_t rows) const {
    if (groups_ > 0) return fmt::format("({}, {})", groups_, rows);
    return transposed_ ? fmt::format("({0},) or (1, {0})", rows) : fmt::format("({0},) or ({0}, 1)", rows);
  }
  std::string blocks(int64_t rows, int64_t ks, bool in_groups) const {
    const int64_t first = transposed_ ? ks : rows, second = transposed_ ? rows : ks;
    return in_groups ? fmt::format("({}, {}, {})", groups_, first, second) : fmt::format("({}, {})", first, second);
  }

 private:
  bool transposed_;
  int64_t groups_;  // 0: none
};

struct Scales {
  const char* name;
  const char* line;  // what one of a vector's values scales
  const Operand& view;
  bool transposed, by_group;
  int64_t rows, k;

  Fit fit(bool grouped) const { return {view, transposed, grouped, rows, k}; }
  [[noreturn]] void refuse(const GemmProblem& p) const;
};

void Scales::refuse(const GemmProblem& p) const {
  const Fit f = fit(by_group);
  const bool k_grouped = p.groups.dimension == Grouping::k;
  const bool blocks_in_groups = by_group && !k_grouped;
  const Shapes shapes(transposed, by_group ? p.batch : 0);
  const bool batched = p.batch > 1 && p.groups.dimension == Grouping::none;
  refuse_value("{} is {}; it must be one value, one per {}{} {}, or{} one per block of 128 elements of K {} or {}{}",
               name, shape_text(view), line, by_group ? " and group" : "", shapes.vector(rows),
               k_grouped && !groups_begin_with_blocks(p.groups) ? ", with an alignment that is a multiple of 128," : "",
               shapes.blocks(rows, f.k_blocks, blocks_in_groups),
               shapes.blocks(f.row_blocks, f.k_blocks, blocks_in_groups),
               batched ? fmt::format("; or such a matrix for each of the batch's {}", p.batch) : "");
}

void check_batch(const Scales& scales, const Fit& fit, int64_t batch) {
  if (fit.grid.batch == 1 || fit.grid.batch == batch) return;
  refuse_value("{} is {}; its batch must be {}", scales.name, shape_text(scales.view),
               batch == 1 ? "1" : fmt::format("{} or 1", batch));
}

}  // namespace

void check_both_scales(const std::optional<Operand>& scale_a, const std::optional<Operand>& scale_b) {
  if (scale_a && scale_b) return;
  refuse_value("{} is missing; pass both scales (an array of one 1.0 scales nothing), or neither",
               scale_a ? "scale_b" : "scale_a");
}

void place_range(const std::optional<Operand>& scale_d, const std::optional<Operand>& amax, const char* leader,
                 ProductCall& call) {
  const int device = call.problem.device;
  call.problem.has_scale_d = scale_d.has_value();
  call.problem.has_amax = amax.has_value();
  if (scale_d) call.arguments.scale_d = one_value(*scale_d, "scale_d", device, leader);
  if (amax) call.arguments.amax = one_value(*amax, "amax", device, leader);
}

void place_scales(const Operand& scale_a, const Operand& scale_b, const ScaleForm& form, GemmProblem& p) {
  const Scales of_a{"scale_a", "row of a", scale_a, form.a_is_transposed, form.a_by_group, rows_of_a(p), p.k};
  const Scales of_b{"scale_b", "column of b", scale_b, true, form.b_by_group, columns_of_b(p), p.k};
  const Grouping grouped = p.groups.dimension;
  const auto place = [&](const Fit& a, const Fit& b, Scaling kind) {
    check_batch(of_a, a, entries_of_scale_a(p, kind));
    check_batch(of_b, b, entries_of_scale_b(p, kind));
    p.scale_a = a.layout(kind);
    p.scale_b = b.layout(kind);
  };
  if (groups_begin_with_blocks(p.groups)) {
    const Fit a = of_a.fit(false), b = of_b.fit(false);
    if (a.block() && b.block()) return place(a, b, Scaling::block);
  }
  const Fit a = of_a.fit(form.a_by_group), b = of_b.fit(form.b_by_group);
  if (!a.vector() && (!a.block() || grouped == Grouping::k)) of_a.refuse(p);
  if (!b.vector() && (!b.block() || grouped == Grouping::k)) of_b.refuse(p);
  if (a.vector() && b.vector()) return place(a, b, Scaling::vector);
  if (a.block() && b.block()) return place(a, b, Scaling::block);
  refuse_value(
      "scale_a is {} and scale_b is {}: one scales blocks of K, the other does not; scale both in blocks, or neither",
      shape_text(scale_a), shape_text(scale_b));
}

void place_row_scales(const Operand& scale_a, const ScaleForm& form, GemmProblem& p) {
  const Scales of_a{"scale_a", "row of a", scale_a, form.a_is_transposed, form.a_by_group, p.m, p.k};
  const Fit a = of_a.fit(form.a_by_group);
  if (!a.vector()) {
    refuse_value("scale_a is {}; beside a packed weight it must be one value, or one per row of a, {}",
                 shape_text(scale_a), Shapes(form.a_is_transposed, form.a_by_group ? p.batch : 0).vector(p.m));
  }
  check_batch(of_a, a, entries_of_scale_a(p, Scaling::vector));
  p.scale_a = a.layout(Scaling::vector);
}

}  // namespace cleave
