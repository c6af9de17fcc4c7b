#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"
#include "all_kernels/typical_problems.h"

namespace cleave {

using namespace typical;

namespace {

/// So deep that TMA adds the sums.
GemmProblem deep(GemmProblem p) {
  p.k = 1024 * p.batch;
  if (p.a.stride_col == 1) p.a.stride_row = p.k;
  if (p.b.stride_row == 1) p.b.stride_col = p.k;
  return p;
}

/// Forward, data gradient, weight gradient.
void gradients(Collector& all) {
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) {
    const bool all_sharings = split == SplitKMode::none;
    const GemmProblem tn = product(DType::bf16, DType::bf16, DType::bf16);
    all.visit(grouped(tn, Grouping::m), split, all_sharings);
    all.visit(grouped(tn, Grouping::n), split);
    GemmProblem adapter = tn;
    adapter.has_c = true;
    all.visit(grouped(adapter, Grouping::m), split);
    all.visit(grouped(product(DType::bf16, DType::bf16, DType::bf16, Major::k, Major::mn), Grouping::m), split);
    GemmProblem gradient = product(DType::bf16, DType::bf16, DType::f32, Major::mn, Major::mn);
    gradient.has_c = true;
    all.visit(grouped(gradient, Grouping::k), split, all_sharings);
    if (split == SplitKMode::none) all.visit(deep(grouped(gradient, Grouping::k)), split, all_sharings);
  }
  const GemmProblem feed_forward = with_swiglu(product(DType::bf16, DType::bf16, DType::bf16));
  all.visit(feed_forward, SplitKMode::none, true);
  all.visit(grouped(feed_forward, Grouping::m));
  all.visit(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true), Grouping::m));
  for (const SplitKMode split :
       {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster, SplitKMode::stream_k}) {
    all.visit(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, kSquares), Grouping::m), split);
    all.visit(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kSquares, kLines), Grouping::n), split);
  }
  all.visit(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector), Grouping::n));
  GemmProblem gradient = scaled(DType::e4m3, DType::e4m3, DType::f32, kLines, kLines);
  gradient.groups.bounds = GroupBounds::aligned_ends;
  gradient.groups.spacing = kScaleBlock;
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) {
    gradient.groups.apart = false;
    all.visit(grouped(gradient, Grouping::k), split);
    gradient.groups.apart = true;
    all.visit(grouped(gradient, Grouping::k), split, split == SplitKMode::none);
  }
  gradient.has_c = true;
  for (const bool apart : {false, true}) {
    gradient.groups.apart = apart;
    all.visit(grouped(gradient, Grouping::k), SplitKMode::none, true);
    all.visit(deep(grouped(gradient, Grouping::k)), SplitKMode::none, true);
  }
  gradient.scale_b = kSquares;
  all.visit(deep(grouped(gradient, Grouping::k)));
  gradient.scale_a = gradient.scale_b = kVector;
  all.visit(grouped(gradient, Grouping::k));
  all.visit(deep(grouped(gradient, Grouping::k)));
}

/// Groups of rows that a list names: what threads copy beside scales.
void lists(Collector& all) {
  const GemmProblem operands[] = {product(DType::bf16, DType::bf16, DType::bf16),
                                  scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true),
                                  scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, kSquares),
                                  scaled(DType::i8, DType::i8, DType::bf16, kLines, kLines)};
  for (const GemmProblem& p : operands) {
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k})
      all.visit(listed(grouped(p, Grouping::m)), split, split == SplitKMode::none);
    all.visit(listed(grouped(with_swiglu(p), Grouping::m)), SplitKMode::none, true);
    GemmProblem found = with_swiglu(p);
    found.d.dtype = DType::e4m3;
    found.scale_out = kLines;
    all.visit(listed(grouped(found, Grouping::m)), SplitKMode::none, true);
  }
  all.visit(listed(grouped(with_function(operands[0]), Grouping::m)));
}

}  // namespace

void visit_groups(Collector& all) {
  gradients(all);
  lists(all);
}

}  // namespace cleave
