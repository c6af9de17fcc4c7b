#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"
#include "all_kernels/typical_problems.h"

namespace cleave {

using namespace typical;

namespace {

/// One class and several, with and without depth, in all three directions.
void classes(Collector& all) {
  for (const Conv kind : kConvs) {
    all.visit(convolution(kind, DType::f16, DType::f16, 2), SplitKMode::none, true);
    all.visit(convolution(kind, DType::bf16, DType::f32, 1), SplitKMode::parallel);
    all.visit(convolution(kind, DType::f32, DType::f32, 2));
    all.visit(convolution(kind, DType::bf16, DType::bf16, 2, true));
    GemmProblem sum = convolution(kind, DType::f16, DType::f16, 2);
    sum.has_c = true;
    all.visit(sum, SplitKMode::none, true);
  }
  for (const SplitKMode split : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
    all.visit(convolution(Conv::dgrad, DType::bf16, DType::bf16, 2), split);
  for (const Conv kind : kConvs) all.visit(convolution_of(kind, 96, 96));  // half lines
  all.visit(convolution(Conv::fprop, DType::i8, DType::i32, 2));
  for (const DType type : {DType::e4m3, DType::i8}) {
    GemmProblem layer = convolution(Conv::fprop, type, DType::bf16, 2);
    layer.scale_a = layer.scale_b = {.kind = Scaling::vector};
    layer.bias = Bias::row;
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel}) all.visit(layer, split);
    layer.d.dtype = type;
    layer.has_scale_d = layer.has_amax = true;
    layer.epilogue = epilogue_of(Activation::silu);
    all.visit(layer);
    all.visit(layer, SplitKMode::stream_k);
  }
  for (const Division division : {Division::plain, Division::fast_load})
    all.visit(convolution(Conv::dgrad, DType::f16, DType::f16, 2, false, division));
}

void few_channels(Collector& all) {
  for (const Conv kind : kConvs) {
    for (const int64_t few : {8, 6, 3}) {
      all.visit(convolution_of(kind, few, 256));
      all.visit(convolution_of(kind, few, 256), SplitKMode::parallel);
      if (kind == Conv::dgrad) all.visit(convolution_of(kind, 64, few));
    }
  }
}

/// Patch embeddings' data gradients: whose filters TMA reads, and does not.
void patches(Collector& all) {
  for (const int32_t size : {16, 14, 4, 2}) all.visit(patch_embedding(size, DType::bf16), SplitKMode::none, size == 16);
  all.visit(patch_embedding(4, DType::bf16, true));
  all.visit(patch_embedding(16, DType::f32));
  for (const SplitKMode split : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
    all.visit(patch_embedding(16, DType::bf16), split);
  GemmProblem layer = as_layer(patch_embedding(16, DType::bf16), Activation::gelu_erf);
  for (const bool has_c : {false, true}) {
    layer.has_c = has_c;
    all.visit(layer);
  }
}

}  // namespace

void visit_convolutions(Collector& all) {
  classes(all);
  few_channels(all);
  patches(all);
}

void visit_transposed_convolutions(Collector& all) {
  all.visit(as_layer(convolution(Conv::dgrad, DType::bf16, DType::bf16, 2), Activation::silu));
}

}  // namespace cleave
