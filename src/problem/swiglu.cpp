// The rules of products whose columns are joined two by two.

#include "cleave/names.h"
#include "problem/problem.h"
#include "problem/rules.h"

namespace cleave {

void check_swiglu(const GemmProblem& p, Messages& out) {
  if (!is_gated(p)) return;
  const char* const what = gate_of(p);
  if (p.n > kMaxSize / 2) {
    out.add(
        "n is {}, but {}, so that b has twice as many columns, and at most 2^31 - 1 are served. Split the problem "
        "along n",
        p.n, what);
  }
  if (p.has_c) {
    out.add("c is given, but {}, to which nothing is added; leave c out, or apply the activation in a step of its own",
            what);
  }
  if (p.groups.dimension == Grouping::n || p.groups.dimension == Grouping::k) {
    out.add(
        "{} and {} is grouped; that serves ungrouped products and groups of m. Apply the activation in a step of its "
        "own",
        what, to_string(p.groups.dimension));
  }
  if (p.epilogue.gates == Gates::interleaved && p.scale_b.kind == Scaling::block && p.scale_b.rows != 1) {
    out.add("{}, but {} columns of b share a scale, gates' and ups'; sort b's columns, and take {}", what,
            p.scale_b.rows, activation_of(p) == Activation::none ? "acc.gate and acc.up" : "swiglu");
  }
  if (p.d.dtype == DType::i32) {
    out.add("d is {}, but {}, whose result is no sum; pass d of 8 bits, float16, bfloat16 or float32",
            to_string(p.d.dtype), what);
  }
  if (output_order(p) == Order::column) {
    out.add("d.stride_row is {} and d.stride_col is {}, but {}, which joins columns of rows; pass a row-major d",
            p.d.stride_row, p.d.stride_col, what);
  }
}

}  // namespace cleave
