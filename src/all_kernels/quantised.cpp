#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"
#include "all_kernels/typical_problems.h"
#include "base/enumerators.h"

namespace cleave {

using namespace typical;

namespace {

/// D in 8 bits with scales that are found, of layers as they follow each other.
void found_scales(Collector& all) {
  const auto quantised = [](GemmProblem p, Activation activation) {
    p.epilogue = epilogue_of(activation);
    p.bias = Bias::row;
    p.has_amax = activation == Activation::swiglu;
    p.scale_out = kLines;
    p.b.stride_batch = 0;
    return p;
  };
  const GemmProblem operands[] = {product(DType::bf16, DType::bf16, DType::e4m3),
                                  scaled(DType::e4m3, DType::e4m3, DType::e4m3, kVector, kVector),
                                  scaled(DType::e4m3, DType::e4m3, DType::e4m3, kLines, kSquares),
                                  scaled(DType::e4m3, DType::e4m3, DType::e5m2, kLines, kLines),
                                  scaled(DType::i8, DType::i8, DType::i8, kVector, kVector)};
  for (const Activation activation : {Activation::swiglu, Activation::gelu_erf}) {
    for (const GemmProblem& p : operands) {
      const GemmProblem layer = quantised(p, activation);
      // Two CTAs that share loads have a half each of gated columns whose slices add up in turn.
      const auto shares = [&](SplitKMode split) {
        if (split == SplitKMode::serial) return activation == Activation::swiglu;
        return &p == operands && split == SplitKMode::none;
      };
      for (const SplitKMode split : values_of<SplitKMode>)
        if (split != SplitKMode::automatic) all.visit(layer, split, shares(split));
      for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
        all.visit(grouped(layer, Grouping::m), split, shares(split));
    }
  }
  for (const GemmProblem& p : operands) {
    GemmProblem rounded = quantised(p, Activation::none);
    rounded.bias = Bias::none;
    rounded.ue8m0_scale_out = rounded.has_amax = rounded.has_c = true;
    rounded.c.dtype = DType::bf16;
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k})
      all.visit(rounded, split);
  }
  for (const ScaleLayout& columns : {kLines, kSquares}) {
    const GemmProblem wide = with_swiglu(scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, columns));
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) {
      all.visit(wide, split);
      all.visit(grouped(wide, Grouping::m), split);
    }
  }
}

/// D in 8 bits with a scale that was found ahead: of gates, and of groups.
void given_scales(Collector& all) {
  for (GemmProblem p : {scaled(DType::e4m3, DType::e4m3, DType::e4m3, kVector, kVector, true),
                        scaled(DType::e4m3, DType::e4m3, DType::e5m2, kLines, kSquares),
                        scaled(DType::i8, DType::i8, DType::i8, kVector, kVector)}) {
    p = with_swiglu(p);
    p.has_scale_d = p.has_amax = true;
    p.bias = Bias::row;
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
      all.visit(p, split);
    all.visit(grouped(p, Grouping::m));
    p.epilogue = epilogue_of(Activation::none);
    all.visit(grouped(p, Grouping::m));
  }
}

}  // namespace

void visit_quantised(Collector& all) {
  found_scales(all);
  given_scales(all);
}

}  // namespace cleave
