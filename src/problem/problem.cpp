#include "problem/problem.h"

#include <utility>

namespace cleave {
namespace {

MatrixLayout transposed(MatrixLayout layout) {
  std::swap(layout.stride_row, layout.stride_col);
  return layout;
}

bool serves(Order order, const MatrixLayout& layout, int64_t rows, int64_t columns) {
  return order == Order::row ? layout.stride_col == 1 || columns <= 1
                             : layout.stride_row == 1 || rows <= 1;
}

double bytes(const MatrixLayout& layout, int64_t rows, int64_t columns, int64_t batch) {
  const int64_t stored = layout.stride_batch == 0 && batch > 1 ? 1 : batch;
  return double(rows) * double(columns) * double(stored) * size_of(layout.dtype);
}

}  // namespace

GemmProblem transposed(const GemmProblem& problem) {
  GemmProblem t = problem;
  std::swap(t.m, t.n);
  t.a = transposed(problem.b);
  t.b = transposed(problem.a);
  t.c = transposed(problem.c);
  t.d = transposed(problem.d);
  if (problem.bias == Bias::row) t.bias = Bias::column;
  if (problem.bias == Bias::column) t.bias = Bias::row;
  return t;
}

GemmArguments transposed(const GemmArguments& arguments) {
  GemmArguments t = arguments;
  std::swap(t.a, t.b);
  return t;
}

std::optional<Order> output_order(const GemmProblem& p) {
  for (const Order order : {Order::row, Order::column}) {
    if (serves(order, p.d, p.m, p.n) && (!p.has_c || serves(order, p.c, p.m, p.n))) return order;
  }
  return std::nullopt;
}

double flops(const GemmProblem& p) {
  return 2.0 * double(p.m) * double(p.n) * double(p.k) * double(p.batch);
}

double minimum_bytes(const GemmProblem& p) {
  double total =
      bytes(p.a, p.m, p.k, p.batch) + bytes(p.b, p.k, p.n, p.batch) + bytes(p.d, p.m, p.n, p.batch);
  if (p.has_c) total += bytes(p.c, p.m, p.n, p.batch);
  if (p.bias != Bias::none) {
    total += double(p.bias == Bias::row ? p.n : p.m) * size_of(p.bias_dtype);
  }
  return total;
}

}  // namespace cleave
