#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"
#include "all_kernels/typical_problems.h"
#include "base/enumerators.h"

namespace cleave {

using namespace typical;

namespace {

void functions_of_products(Collector& all) {
  all.visit(with_function(product(DType::bf16, DType::bf16, DType::bf16)));
  all.visit(with_function(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector)));
  for (const SplitKMode split : values_of<SplitKMode>)
    if (split != SplitKMode::automatic) all.visit(with_function(product(DType::f16, DType::f16, DType::f32)), split);
  for (const char* const function : {kErrorFunction, kManyMatrices})
    for (const DType d : {DType::f16, DType::f32})
      all.visit(with_matrices(product(DType::f16, DType::f16, d), function));
  all.visit(with_gate(product(DType::bf16, DType::bf16, DType::bf16)));
  all.visit(with_gate(grouped(product(DType::bf16, DType::bf16, DType::bf16), Grouping::m)));
  all.visit(with_gate(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector)));
}

void functions_of_groups(Collector& all) {
  const GemmProblem tn = product(DType::bf16, DType::bf16, DType::bf16);
  const GemmProblem gradient = product(DType::bf16, DType::bf16, DType::f32, Major::mn, Major::mn);
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k}) {
    all.visit(with_function(grouped(tn, Grouping::m)), split);
    all.visit(with_function(grouped(gradient, Grouping::k)), split);
  }
  all.visit(with_function(grouped(tn, Grouping::n)));
  all.visit(with_function(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector), Grouping::m)));
  all.visit(with_function(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, kSquares), Grouping::m)));
}

void functions_of_convolutions(Collector& all) {
  for (const Conv kind : kConvs) {
    all.visit(with_function(convolution(kind, DType::bf16, DType::bf16, 2)));
    all.visit(with_function(convolution(kind, DType::f16, DType::f32, 1)), SplitKMode::parallel);
    all.visit(with_function(convolution_of(kind, 6, 256)));
  }
  for (const SplitKMode split : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
    all.visit(with_function(convolution(Conv::dgrad, DType::bf16, DType::bf16, 2)), split);
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel})
    all.visit(with_function(patch_embedding(16, DType::bf16)), split);
  all.visit(with_function(patch_embedding(14, DType::bf16)));
}

void reductions(Collector& all) {
  const GemmProblem tn = product(DType::bf16, DType::bf16, DType::bf16);
  for (const SplitKMode split : values_of<SplitKMode>)
    if (split != SplitKMode::automatic) all.visit(with_reductions(tn), split);
  all.visit(with_reductions(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector)));
  all.visit(with_reductions(grouped(tn, Grouping::m)));
  all.visit(with_reductions(grouped(tn, Grouping::m)), SplitKMode::parallel);
  all.visit(with_reductions(grouped(product(DType::bf16, DType::bf16, DType::f32, Major::mn, Major::mn), Grouping::k)));
  for (const Conv kind : kConvs) all.visit(with_reductions(convolution(kind, DType::bf16, DType::bf16, 2)));
}

}  // namespace

void visit_functions(Collector& all) {
  functions_of_products(all);
  functions_of_groups(all);
  functions_of_convolutions(all);
  reductions(all);
}

}  // namespace cleave
