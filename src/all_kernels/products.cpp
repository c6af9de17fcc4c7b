#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"
#include "all_kernels/typical_problems.h"
#include "base/enumerators.h"

namespace cleave {

using namespace typical;

namespace {

void layouts(Collector& all) {
  for (const Major a : kMajors) {
    for (const Major b : kMajors) {
      const bool base = a == Major::k && b == Major::k;
      for (const DType in : {DType::bf16, DType::f32}) all.visit(product(in, in, in, a, b), SplitKMode::none, base);
      all.visit(product(DType::f16, DType::f16, DType::f16, a, b, 2), SplitKMode::none, base);
    }
  }
}

/// Contiguous along them.
void few_rows(Collector& all) {
  for (const Major b : kMajors) {
    GemmProblem p = product(DType::bf16, DType::bf16, DType::bf16, Major::mn, b);
    p.m = 64;
    for (const uint32_t alignment : {16, 8, 4}) {
      p.a = matrix(DType::bf16, false, p.m, p.k, alignment);
      all.visit(p, SplitKMode::none, alignment == 16);
    }
    for (const SplitKMode split : {SplitKMode::parallel, SplitKMode::cluster, SplitKMode::stream_k})
      all.visit(p, split, b == Major::k);
    all.visit(as_layer(p, Activation::gelu_erf));
  }
}

void split_modes(Collector& all) {
  for (const SplitKMode split : values_of<SplitKMode>) {
    if (split == SplitKMode::none || split == SplitKMode::automatic) continue;
    for (const DType in : {DType::f16, DType::f32, DType::i8}) all.visit(product(in, in, DType::f32), split);
    all.visit(product(DType::bf16, DType::bf16, DType::bf16, Major::mn, Major::mn), split, true);
  }
}

/// Rows that do not depend on M, of products and of groups.
void in_turn(Collector& all) {
  const auto add = [&](GemmProblem p, bool all_sharings = false) {
    p.deterministic = Determinism::batch_invariant;
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel}) all.visit(p, split, all_sharings, true);
  };
  for (const DType in : {DType::bf16, DType::f32}) add(product(in, in, in), in == DType::bf16);
  add(product(DType::f16, DType::f16, DType::f32, Major::k, Major::mn));
  add(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true));
  add(as_layer(product(DType::bf16, DType::bf16, DType::bf16), Activation::gelu_erf));
  add(with_function(product(DType::bf16, DType::bf16, DType::bf16)));
  add(with_gate(product(DType::bf16, DType::bf16, DType::bf16)));
  add(grouped(product(DType::bf16, DType::bf16, DType::bf16), Grouping::m));
  add(grouped(with_function(product(DType::bf16, DType::bf16, DType::bf16)), Grouping::m));
}

void epilogues(Collector& all) {
  for (const Activation activation : values_of<Activation>) {
    const GemmProblem p = as_layer(product(DType::bf16, DType::bf16, DType::bf16), activation);
    if (activation != Activation::none && p.epilogue.gates == Gates::none) all.visit(p);
  }
}

/// Without a bias, larger tiles have registers for C.
void with_c(Collector& all) {
  GemmProblem products[] = {product(DType::bf16, DType::bf16, DType::bf16),
                            product(DType::bf16, DType::bf16, DType::f32),
                            scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector),
                            scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true)};
  for (GemmProblem& p : products) {
    p.has_c = true;
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
      all.visit(p, split, true);
  }
}

}  // namespace

void visit_products(Collector& all) {
  layouts(all);
  few_rows(all);
  split_modes(all);
  in_turn(all);
  epilogues(all);
  with_c(all);
}

}  // namespace cleave
