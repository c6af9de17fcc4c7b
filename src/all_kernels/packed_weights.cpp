#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"
#include "all_kernels/typical_problems.h"
#include "base/enumerators.h"

namespace cleave {

using namespace typical;

namespace {

/// Served with tiles transposed alone, of any sharing.
void add(Collector& all, const GemmProblem& p, SplitKMode split = SplitKMode::none, bool in_turn = false) {
  all.visit(p, split, true, in_turn);
}

GemmProblem mxfp4(DType type) {
  return weights(type, type, 32, false, Major::k, WeightFormat::mxfp4);
}

GemmProblem nvfp4(DType type) {
  GemmProblem p = weights(type, type, 16, false, Major::k, WeightFormat::nvfp4);
  p.scale_b = {.kind = Scaling::vector};
  return p;
}

/// By activations of 8 bits.
GemmProblem bytes(DType type, int64_t group, bool has_zero, WeightFormat format = WeightFormat::int4) {
  GemmProblem p = weights(type, DType::bf16, group, has_zero, Major::k, format);
  p.scale_a = kVector;
  if (format == WeightFormat::nvfp4) p.scale_b = kVector;
  return p;
}

void integers(Collector& all) {
  for (const SplitKMode split : values_of<SplitKMode>) {
    if (split == SplitKMode::automatic) continue;
    add(all, weights(DType::bf16, DType::bf16, 128, false), split);
    add(all, weights(DType::f16, DType::f32, 32, true), split);
  }
  add(all, weights(DType::bf16, DType::bf16, 64, true));
  add(all, weights(DType::bf16, DType::bf16, 32, false));
  add(all, weights(DType::bf16, DType::bf16, 128, true, Major::mn), SplitKMode::parallel);
}

void floats(Collector& all) {
  add(all, mxfp4(DType::bf16));
  add(all, mxfp4(DType::f16), SplitKMode::parallel);
  add(all, grouped(mxfp4(DType::bf16), Grouping::m));
  GemmProblem bias = nvfp4(DType::bf16);
  bias.bias = Bias::row;
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::cluster, SplitKMode::stream_k}) add(all, bias, split);
  add(all, nvfp4(DType::f16), SplitKMode::parallel);
  add(all, grouped(nvfp4(DType::bf16), Grouping::m));
}

void gates(Collector& all) {
  const auto joined = [](GemmProblem p) {
    p.epilogue = epilogue_of(Activation::swiglu);
    p.weights_b.scale_stride_k = 2 * p.n;
    p.bias = Bias::row;
    return p;
  };
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::cluster, SplitKMode::stream_k})
    add(all, joined(weights(DType::bf16, DType::bf16, 128, false)), split);
  add(all, joined(weights(DType::f16, DType::f16, 64, true)), SplitKMode::parallel);
  add(all, joined(grouped(mxfp4(DType::bf16), Grouping::m)));
  GemmProblem reduced = joined(weights(DType::bf16, DType::bf16, 128, false));
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k})
    add(all, with_reductions(reduced), split);
}

void layers(Collector& all) {
  GemmProblem layer = as_layer(weights(DType::bf16, DType::bf16, 128, true), Activation::gelu_erf);
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) add(all, layer, split);
  layer.deterministic = Determinism::batch_invariant;
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel}) add(all, layer, split, true);
  add(all, weights(DType::bf16, DType::bf16, 128, false), SplitKMode::parallel, true);
  add(all, with_function(weights(DType::bf16, DType::bf16, 128, false)));
}

void activations_of_8_bits(Collector& all) {
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::cluster, SplitKMode::stream_k}) {
    add(all, bytes(DType::e4m3, 128, false), split);
    add(all, bytes(DType::i8, 64, true), split);
  }
  add(all, bytes(DType::e4m3, 32, true), SplitKMode::parallel);
  add(all, bytes(DType::i8, 32, true), SplitKMode::serial);
  add(all, bytes(DType::i8, 128, false), SplitKMode::parallel);
  add(all, bytes(DType::e4m3, 32, false, WeightFormat::mxfp4));
  add(all, bytes(DType::i8, 32, false, WeightFormat::mxfp4), SplitKMode::cluster);
  for (const DType type : {DType::e4m3, DType::i8}) {
    for (const SplitKMode split : values_of<SplitKMode>) {
      if (split != SplitKMode::automatic) add(all, bytes(type, 16, false, WeightFormat::nvfp4), split);
    }
  }
  GemmProblem layer = bytes(DType::i8, 128, true);
  layer.bias = Bias::row;
  layer.has_c = true;
  add(all, layer);
  add(all, with_function(bytes(DType::e4m3, 128, false)));
}

void groups(Collector& all) {
  add(all, grouped(bytes(DType::e4m3, 64, false), Grouping::m));
  add(all, grouped(bytes(DType::i8, 128, true), Grouping::m), SplitKMode::parallel);
  add(all, grouped(bytes(DType::e4m3, 16, false, WeightFormat::nvfp4), Grouping::m));
  add(all, grouped(bytes(DType::i8, 16, false, WeightFormat::nvfp4), Grouping::m), SplitKMode::stream_k);
  add(all, grouped(weights(DType::bf16, DType::bf16, 32, false), Grouping::m));
  add(all, grouped(weights(DType::bf16, DType::bf16, 128, true), Grouping::m), SplitKMode::stream_k);
}

}  // namespace

void visit_packed_weights(Collector& all) {
  integers(all);
  floats(all);
  gates(all);
  layers(all);
  activations_of_8_bits(all);
  groups(all);
}

}  // namespace cleave
