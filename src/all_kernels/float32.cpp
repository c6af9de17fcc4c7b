#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"
#include "all_kernels/typical_problems.h"

namespace cleave {

using namespace typical;

namespace {

void in_precision(Collector& all, Precision precision) {
  const auto product_of = [&](Major a, Major b) {
    return with(precision, product(DType::f32, DType::f32, DType::f32, a, b));
  };
  for (const Major a : kMajors) {
    for (const Major b : kMajors) all.visit(product_of(a, b));
  }
  const GemmProblem nt = product_of(Major::mn, Major::mn);
  for (const SplitKMode split : {SplitKMode::parallel, SplitKMode::stream_k}) all.visit(nt, split);
  all.visit(grouped(nt, Grouping::k));
  for (const Conv kind : kConvs) all.visit(with(precision, convolution(kind, DType::f32, DType::f32, 2)));
}

}  // namespace

void visit_other_float32(Collector& all) {
  for (const Precision precision : {Precision::ieee, Precision::tf32x3, Precision::bf16x3})
    in_precision(all, precision);
}

}  // namespace cleave
