#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"
#include "all_kernels/typical_problems.h"

namespace cleave {

using namespace typical;

namespace {

void narrow_groups(Collector& all) {
  enum class Epilogue { none, activation, function };
  using enum Epilogue;
  const auto add = [&](Conv kind, DType in, DType out, int32_t taps, int32_t stride, int64_t group,
                       Epilogue epilogue = none) {
    const ConvAxis axis{.size = 56, .filter = taps, .stride = stride, .pad_begin = taps / 2, .pad_end = taps / 2};
    const ConvLayout conv{
        .kind = kind, .images = 8, .channels = group, .filters = group, .axes = {ConvAxis{}, axis, axis}};
    GemmProblem p = implicit_gemm(conv, 96 / group, in, out);
    if (epilogue == function) p = with_function(p);
    if (epilogue == activation && kind != Conv::wgrad) {
      p.bias = Bias::row;
      p.bias_stride_batch = group;
      p.epilogue = epilogue_of(Activation::gelu_erf);
    }
    p.has_c = epilogue == activation;
    all.visit_direct(p);
  };
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    for (const int32_t taps : {3, 5, 7}) {
      for (const int32_t stride : {1, 2})
        add(kind, DType::bf16, DType::bf16, taps, stride, 1, taps == 3 ? activation : none);
    }
    for (const int64_t group : {1, 2, 4, 8}) add(kind, DType::f16, DType::f16, 3, 1, group);
    add(kind, DType::f32, DType::f32, 5, 2, 1);
    add(kind, DType::bf16, DType::f32, 3, 2, 4, activation);
    for (const int32_t stride : {1, 2}) add(kind, DType::bf16, DType::bf16, 3, stride, 1, function);
    add(kind, DType::f16, DType::f32, 5, 1, 2, function);
    add(kind, DType::bf16, DType::f32, 3, 2, 8, activation);
    add(kind, DType::f16, DType::f16, 3, 1, 16, function);
    add(kind, DType::bf16, DType::bf16, 3, 2, 16);
    add(kind, DType::f16, DType::f16, 5, 1, 32);
  }
  for (const int32_t taps : {3, 5, 7})
    for (const int32_t stride : {1, 2}) add(Conv::wgrad, DType::bf16, DType::bf16, taps, stride, 1);
  for (const int64_t group : {2, 4}) add(Conv::wgrad, DType::f16, DType::f32, 3, 1, group, activation);
  add(Conv::wgrad, DType::f32, DType::f32, 5, 2, 1);
}

void windows(Collector& all) {
  const auto add = [&](Conv kind, DType in, DType out, int64_t channels, int64_t filters, int32_t taps, int32_t stride,
                       bool finishes = false) {
    const ConvAxis axis{.size = 64, .filter = taps, .stride = stride, .pad_begin = taps / 2, .pad_end = taps / 2};
    const ConvLayout conv{
        .kind = kind, .images = 8, .channels = channels, .filters = filters, .axes = {ConvAxis{}, axis, axis}};
    GemmProblem p = implicit_gemm(conv, 1, in, out);
    p.has_c = finishes;
    if (finishes && kind == Conv::fprop) {
      p.bias = Bias::row;
      p.epilogue = epilogue_of(Activation::silu);
    }
    all.visit_direct(p);
  };
  for (const Conv kind : {Conv::fprop, Conv::wgrad}) {
    add(kind, DType::f16, DType::f16, 3, 64, 7, 2);
    add(kind, DType::bf16, DType::bf16, 3, 64, 7, 2, true);
    add(kind, DType::bf16, DType::f32, 3, 64, 3, 1, true);
    add(kind, DType::f16, DType::f16, 3, 32, 3, 2);
    add(kind, DType::bf16, DType::bf16, 4, 320, 3, 1);
    add(kind, DType::f16, DType::f16, 1, 24, 5, 1);
    add(kind, DType::f16, DType::bf16, 3, 96, 4, 4);
    add(kind, DType::f16, DType::f16, 4, 64, 8, 1);
  }
}

void spread(Collector& all) {
  const auto add = [&](DType in, DType out, int64_t channels, int64_t filters, int32_t taps, int32_t stride,
                       bool finishes = false) {
    const ConvAxis axis{.size = 64, .filter = taps, .stride = stride, .pad_begin = taps / 2, .pad_end = taps / 2};
    const ConvLayout conv{
        .kind = Conv::dgrad, .images = 8, .channels = channels, .filters = filters, .axes = {ConvAxis{}, axis, axis}};
    GemmProblem p = implicit_gemm(conv, 1, in, out);
    if (finishes) p = as_layer(p, Activation::silu);
    for (const GemmProblem& of : {p, with_function(p)}) {
      all.visit_direct(of);
      if (finishes) break;
    }
  };
  add(DType::f16, DType::f16, 3, 64, 7, 2);
  add(DType::bf16, DType::bf16, 3, 128, 3, 1, true);
  add(DType::f16, DType::f32, 4, 320, 3, 1, true);
  add(DType::bf16, DType::bf16, 8, 96, 3, 2);
  add(DType::f16, DType::f16, 1, 24, 5, 3);
  add(DType::f16, DType::f16, 32, 64, 3, 1);
  add(DType::f16, DType::bf16, 6, 72, 4, 2);
  add(DType::f16, DType::f16, 3, 96, 4, 4);
}

void one_tap(Collector& all) {
  const auto add = [&](Conv kind, DType in, DType out, int64_t channels, int64_t filters, bool finishes = false) {
    const ConvLayout conv{.kind = kind,
                          .images = 64,
                          .channels = channels,
                          .filters = filters,
                          .axes = {ConvAxis{}, ConvAxis{.size = 56}, ConvAxis{.size = 56}}};
    GemmProblem p = implicit_gemm(conv, 1, in, out);
    if (finishes) p = as_layer(p, Activation::silu);
    for (const GemmProblem& of : {p, with_function(p)}) all.visit_direct(of);
  };
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    add(kind, DType::f16, DType::f16, 24, 144);
    add(kind, DType::bf16, DType::f32, 144, 40);
    add(kind, DType::bf16, DType::bf16, 192, 32, true);
    add(kind, DType::f16, DType::bf16, 16, 96, true);
  }
}

}  // namespace

void visit_direct_convolutions(Collector& all) {
  narrow_groups(all);
  windows(all);
  spread(all);
  one_tap(all);
}

}  // namespace cleave
