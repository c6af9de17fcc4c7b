// What follows from a GemmProblem alone, and the same product read the other way: D^T = B^T A^T.
#pragma once

#include <utility>

#include "cleave/config/gate_columns.h"
#include "cleave/config/list_params.h"
#include "cleave/problem.h"
#include "cleave/schedule/groups.h"

namespace cleave {

/// Whether two columns of B, a gate's and an up's, make one of D.
constexpr bool is_gated(const GemmProblem& p) {
  return p.epilogue.gates != Gates::none;
}

/// Where these two lie.
constexpr GateColumns gate_columns(const GemmProblem& p) {
  if (p.epilogue.gates == Gates::interleaved) return {2, 1};
  return {1, is_gated(p) ? uint32_t(p.n) : 0};
}

/// The same of two rows of A: a packed weight's, read the other way.
constexpr bool gates_rows(const GemmProblem& p) {
  return is_gated(p) && p.weights_a.format != WeightFormat::none;
}

/// The columns of B, and of the bias of a row.
constexpr int64_t columns_of_b(const GemmProblem& p) {
  return is_gated(p) && !gates_rows(p) ? 2 * p.n : p.n;
}

/// What scales of the operands cover. A packed weight may have some where the other operand has none.
constexpr Scaling scaling_of(const GemmProblem& p) {
  return p.scale_a.kind != Scaling::none ? p.scale_a.kind : p.scale_b.kind;
}

/// Whether D's scales are found, one for each row of 128 columns.
inline bool finds_scales(const GemmProblem& p) {
  return p.scale_out.kind == Scaling::block;
}

namespace detail {

inline MatrixLayout transposed(MatrixLayout layout) {
  std::swap(layout.stride_row, layout.stride_col);
  return layout;
}

inline EpilogueLayout transposed(EpilogueLayout layout) {
  if (layout.shape == InputShape::row || layout.shape == InputShape::column) {
    layout.shape = layout.shape == InputShape::row ? InputShape::column : InputShape::row;
  } else {
    layout.order = layout.order == Order::row ? Order::column : Order::row;
  }
  return layout;
}

}  // namespace detail

/// The same product read the other way. Its arguments are those of `transposed(arguments)`. Not for gates without
/// packed weights, which join columns, for scales of D, which are of columns, nor for convolutions, whose matrices have
/// roles of their own.
inline GemmProblem transposed(const GemmProblem& problem) {
  GemmProblem t = problem;
  std::swap(t.m, t.n);
  t.a = detail::transposed(problem.b);
  t.b = detail::transposed(problem.a);
  t.c = detail::transposed(problem.c);
  t.d = detail::transposed(problem.d);
  std::swap(t.scale_a, t.scale_b);
  std::swap(t.weights_a, t.weights_b);
  std::swap(t.static_a, t.static_b);
  if (problem.groups.dimension == Grouping::m) t.groups.dimension = Grouping::n;
  if (problem.groups.dimension == Grouping::n) t.groups.dimension = Grouping::m;
  if (problem.bias == Bias::row) t.bias = Bias::column;
  if (problem.bias == Bias::column) t.bias = Bias::row;
  if (problem.epilogue.function != nullptr) {
    for (EpilogueLayout& input : t.epilogue.inputs) input = detail::transposed(input);
    for (EpilogueLayout& output : t.epilogue.outputs) output = detail::transposed(output);
  }
  return t;
}

inline GemmArguments transposed(const GemmArguments& arguments) {
  GemmArguments t = arguments;
  std::swap(t.a, t.b);
  std::swap(t.scale_a, t.scale_b);
  std::swap(t.zero_a, t.zero_b);
  return t;
}

// Entries of the batch, or groups, that have a matrix of their own: one, where the groups cut a
// dimension of it.

namespace detail {

constexpr int64_t entries(const GemmProblem& p, Grouping first, Grouping second) {
  const Grouping grouped = p.groups.dimension;
  return grouped != Grouping::none && (grouped == first || grouped == second) ? 1 : p.batch;
}

}  // namespace detail

constexpr int64_t entries_of_a(const GemmProblem& p) {
  return detail::entries(p, Grouping::m, Grouping::k);
}
constexpr int64_t entries_of_b(const GemmProblem& p) {
  return detail::entries(p, Grouping::n, Grouping::k);
}
constexpr int64_t entries_of_d(const GemmProblem& p) {
  return detail::entries(p, Grouping::m, Grouping::n);
}

/// And those with scales of this kind: along K they lie with K's groups, while of whole rows there is
/// one for each group of K.
constexpr int64_t entries_of_scale_a(const GemmProblem& p, Scaling kind) {
  return detail::entries(p, Grouping::m, kind == Scaling::block ? Grouping::k : Grouping::m);
}
constexpr int64_t entries_of_scale_b(const GemmProblem& p, Scaling kind) {
  return detail::entries(p, Grouping::n, kind == Scaling::block ? Grouping::k : Grouping::n);
}

/// Elements of the grouped dimension, of all groups and of what belongs to none; 0 without groups.
inline int64_t grouped_extent(const GemmProblem& p) {
  switch (p.groups.dimension) {
    case Grouping::m:
      return p.m;
    case Grouping::n:
      return p.n;
    case Grouping::k:
      return p.k;
    default:
      return 0;
  }
}

/// Rows of A, and columns of B, as they lie in memory: of the product, or those that a list picks from.
constexpr int64_t rows_of_a(const GemmProblem& p) {
  if (gates_rows(p)) return 2 * p.m;
  return p.gather.given && p.groups.dimension == Grouping::m ? p.gather.rows : p.m;
}
constexpr int64_t stored_columns_of_b(const GemmProblem& p) {
  return p.gather.given && p.groups.dimension == Grouping::n ? p.gather.rows : columns_of_b(p);
}

/// The groups as a schedule reads them, but for the arrays.
inline GroupParams group_params(const GemmProblem& p) {
  const GroupLayout& layout = p.groups;
  return {.bounds = layout.bounds,
          .wide = layout.wide,
          .zero_rest = layout.zero_rest,
          .count = uint32_t(p.batch),
          .spacing = uint32_t(layout.spacing),
          .extent = uint32_t(grouped_extent(p))};
}

/// And the list that picks rows, but for its array.
inline ListParams list_params(const GemmProblem& p) {
  if (!p.gather.given) return {};
  return {nullptr, FastDivmod(uint32_t(p.gather.divisor)), uint32_t(p.gather.rows)};
}

}  // namespace cleave
