// Operations to emit: one for each kind of kernel, schedule and epilogue.
#pragma once

#include <ostream>
#include <vector>

#include "cleave/conv.h"
#include "cleave/epilogue.h"
#include "launch/packed_weight.h"

namespace cleave {

struct EmitCase {
  const char* name;
  GemmProblem problem;
};

inline std::ostream& operator<<(std::ostream& out, const EmitCase& x) {
  return out << x.name;
}

/// Packed matrices; B transposed is what torch's Linear has.
inline GemmProblem product(int64_t m, int64_t n, int64_t k, DType in, DType out, int64_t batch = 1, bool a_row = true,
                           bool b_row = false) {
  const int64_t several = batch > 1;
  return {.m = m,
          .n = n,
          .k = k,
          .batch = batch,
          .a = {in, a_row ? k : 1, a_row ? 1 : m, several * m * k},
          .b = {in, b_row ? n : 1, b_row ? 1 : k, several * n * k},
          .d = {out, n, 1, several * m * n}};
}

inline GemmProblem with_epilogue(GemmProblem p) {
  p.has_c = true;
  p.c = p.d;
  p.bias = Bias::row;
  p.bias_dtype = DType::f32;
  p.epilogue = epilogue_of(Activation::relu);
  return p;
}

inline GemmProblem split(GemmProblem p, SplitKMode mode, int32_t slices = 0) {
  p.split_k_mode = mode;
  p.split_k_slices = slices;
  return p;
}

inline GemmProblem scaled(GemmProblem p, ScaleLayout a, ScaleLayout b) {
  p.scale_a = a;
  p.scale_b = b;
  return p;
}

/// `p` with eight groups along `dimension`.
inline GemmProblem grouped(GemmProblem p, Grouping dimension, GroupLayout layout = {}) {
  p.batch = 8;
  p.groups = layout;
  p.groups.dimension = dimension;
  p.groups.zero_rest = dimension != Grouping::k;
  if (dimension == Grouping::m) p.b.stride_batch = p.n * p.k;
  if (dimension == Grouping::n) p.a.stride_batch = p.m * p.k;
  if (dimension == Grouping::k) p.d.stride_batch = p.m * p.n;
  if (dimension == Grouping::k && p.has_c) p.c.stride_batch = p.m * p.n;
  return p;
}

/// `p` with B in 4 bits.
inline GemmProblem packed(GemmProblem p, WeightFormat format, int64_t group, bool has_zero = false) {
  p.weights_b = {.format = format, .has_zero = has_zero, .group = group};
  place_packed_weight(p);
  return p;
}

/// An epilogue function with an input of each shape, and an output beside D; or a gated one of a number.
inline const EpilogueFunction& function_of_all() {
  return epilogue_function(R"(
    shift row
    factor scalar
    mask column
    residual matrix
    %0 = multiply acc factor
    %1 = add %0 shift
    %2 = multiply %1 mask
    d = add %2 residual
    pre = %1)");
}
inline const EpilogueFunction& gated_function() {
  return epilogue_function(R"(
    limit scalar
    %0 = minimum acc.gate limit
    d = multiply %0 acc.up)");
}

/// `p` with that function over packed operands, whose matrices have the strides of D.
inline GemmProblem with_function(GemmProblem p) {
  p.epilogue.function = &function_of_all();
  const bool grouped = p.groups.dimension == Grouping::m || p.groups.dimension == Grouping::n;
  const EpilogueLayout matrix{
      .dtype = DType::bf16, .alignment = 16, .stride = p.d.stride_row, .stride_batch = grouped ? 0 : p.d.stride_batch};
  const bool is_conv = p.conv.kind != Conv::none && p.batch > 1, filters = p.conv.kind == Conv::wgrad;
  EpilogueLayout row{.shape = InputShape::row, .dtype = DType::f32, .alignment = 4, .stride = 1};
  EpilogueLayout column{.shape = InputShape::column, .dtype = DType::f16, .alignment = 2, .stride = 1};
  if (is_conv && !filters) row.stride_batch = p.n;
  if (is_conv && filters) column.stride_batch = p.m;
  p.epilogue.inputs[0] = row;
  p.epilogue.inputs[1] = {.shape = InputShape::scalar};
  p.epilogue.inputs[2] = column;
  p.epilogue.inputs[3] = matrix;
  p.epilogue.outputs[0] = matrix;
  return p;
}

inline GemmProblem with_gated_function(GemmProblem p) {
  p.epilogue.function = &gated_function();
  p.epilogue.gates = Gates::halves;
  p.epilogue.inputs[0] = {.shape = InputShape::scalar, .dtype = DType::bf16, .alignment = 2};
  return p;
}

/// Functions that reduce D.
inline const EpilogueFunction& over_rows() {
  return epilogue_function("%0 = multiply acc 0.5\nd = acc\ntotal = sum row %0\nlargest = absmax scalar acc");
}
inline const EpilogueFunction& over_columns() {
  return epilogue_function("%0 = multiply acc acc\nd = acc\nnorm = sum column %0\ntotal = sum scalar acc");
}

/// `p` with one of them, whose results are without gaps.
inline GemmProblem with_reductions(GemmProblem p, const EpilogueFunction& function) {
  p.epilogue.function = &function;
  const bool is_conv = p.conv.kind != Conv::none, filters = p.conv.kind == Conv::wgrad;
  for (size_t i = 1; i < function.outputs().size(); ++i) {
    const InputShape shape = function.outputs()[i].shape;
    EpilogueLayout& layout = p.epilogue.outputs[i - 1];
    layout = {.shape = shape, .dtype = DType::f32, .alignment = 4, .stride = shape != InputShape::scalar};
    const bool rows = shape == InputShape::row, columns = shape == InputShape::column;
    const bool varies =
        is_conv ? p.batch > 1 && (filters ? columns : rows)
                : !(rows && p.groups.dimension == Grouping::n) && !(columns && p.groups.dimension == Grouping::m);
    if (varies) layout.stride_batch = rows ? p.n : columns ? p.m : 1;
  }
  return p;
}

/// For C++ alone.
inline std::vector<EmitCase> emit_reduction_cases() {
  constexpr DType bf16 = DType::bf16, f32 = DType::f32;
  const GemmProblem rows = grouped(product(4096, 1024, 512, bf16, bf16), Grouping::m);
  const GemmProblem columns = grouped(product(1024, 4096, 512, bf16, bf16), Grouping::n);
  const ScaleLayout vector{.kind = Scaling::vector, .stride_row = 1};
  return {
      {"reduced", with_reductions(product(512, 1024, 512, bf16, bf16), over_rows())},
      {"reduced_lines", with_reductions(product(4096, 64, 512, bf16, bf16), over_columns())},
      {"reduced_small_m", with_reductions(product(8, 4096, 4096, bf16, bf16), over_rows())},
      {"reduced_batched", with_reductions(product(512, 256, 320, DType::f16, f32, 5, false, true), over_columns())},
      {"reduced_split",
       with_reductions(split(product(128, 256, 16384, bf16, bf16), SplitKMode::parallel, 16), over_columns())},
      {"reduced_int8", with_reductions(scaled(product(512, 768, 1024, DType::i8, bf16), vector, vector), over_rows())},
      {"reduced_rows_over_rows", with_reductions(rows, over_rows())},
      {"reduced_rows_over_columns", with_reductions(rows, over_columns())},
      {"reduced_columns", with_reductions(columns, over_columns())},
      {"reduced_depth",
       with_reductions(grouped(product(1024, 512, 4096, bf16, f32, 1, false, true), Grouping::k), over_rows())},
  };
}

inline std::vector<EmitCase> emit_cases() {
  constexpr DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32, i8 = DType::i8, e4m3 = DType::e4m3;
  constexpr ScaleLayout vector{.kind = Scaling::vector, .stride_row = 1};
  constexpr ScaleLayout one{.kind = Scaling::vector, .stride_row = 0};
  const auto lines = [](int64_t rows) {
    return ScaleLayout{.kind = Scaling::block, .stride_row = 1, .stride_k = rows};
  };
  const auto squares = [](int64_t k, int64_t batch_stride = 0) {
    return ScaleLayout{Scaling::block, 128, k / 128, 1, batch_stride};
  };
  GemmProblem zero = scaled(product(512, 768, 1024, i8, bf16), vector, vector);
  zero.has_zero = true;
  GemmProblem chained = scaled(product(512, 768, 1024, e4m3, e4m3), vector, one);
  chained.has_scale_d = chained.has_amax = chained.has_c = true;
  chained.c = chained.d;
  GemmProblem exact = product(512, 768, 1024, i8, DType::i32);
  exact.has_c = true;
  exact.c = exact.d;
  GemmProblem gated = product(512, 1024, 512, bf16, bf16);
  gated.epilogue = epilogue_of(Activation::swiglu);
  GemmProblem gates_of_weight = gated;
  gates_of_weight.bias = Bias::row;
  GemmProblem biased =
      grouped(product(2048, 512, 256, bf16, bf16), Grouping::m, {.bounds = GroupBounds::starts, .wide = true});
  biased.bias = Bias::row;
  biased.bias_stride_batch = 512;
  return {
      {"plain", product(4096, 4096, 4096, bf16, bf16)},
      {"small_m", with_epilogue(product(8, 4096, 4096, bf16, bf16))},
      {"batched", product(512, 256, 320, f16, f32, 5, false, true)},
      {"portable", with_epilogue(product(1001, 701, 301, f16, f32, 3))},
      {"serial", split(product(512, 1000, 5000, f32, f32, 3), SplitKMode::serial)},
      {"parallel", split(with_epilogue(product(128, 256, 16384, f16, f16)), SplitKMode::parallel, 16)},
      {"cluster", split(product(128, 128, 8192, bf16, f32), SplitKMode::cluster)},
      {"stream_k", split(product(1000, 1000, 5000, f16, f16), SplitKMode::stream_k)},
      {"portable_split", split(product(101, 99, 5001, f16, f32), SplitKMode::parallel, 7)},
      {"int8", zero},
      {"int32", exact},
      {"fp8", chained},
      {"blocks", scaled(product(512, 768, 1024, e4m3, bf16), lines(512), squares(1024))},
      {"swiglu", gated},
      {"rows", grouped(product(4096, 1024, 512, bf16, bf16), Grouping::m)},
      {"rows_of_blocks", grouped(scaled(product(4096, 1024, 512, e4m3, bf16), lines(4096), squares(512, 32)),
                                 Grouping::m, {.bounds = GroupBounds::counts, .spacing = 512})},
      {"rows_biased", biased},
      {"columns", grouped(product(1024, 4096, 512, bf16, bf16), Grouping::n)},
      {"depth", grouped(with_epilogue(product(1024, 512, 4096, bf16, f32, 1, false, true)), Grouping::k)},
      {"depth_stream_k", split(grouped(product(1024, 512, 4096, bf16, f32, 1, false, true), Grouping::k,
                                       {.bounds = GroupBounds::aligned_ends, .spacing = 64}),
                               SplitKMode::stream_k)},
      {"function", with_function(product(512, 1024, 512, bf16, bf16))},
      {"function_batched", with_function(product(512, 256, 320, f16, f32, 5, false, true))},
      {"function_portable", with_function(split(product(101, 99, 5001, f16, f32), SplitKMode::parallel, 7))},
      {"function_of_8_bits", with_function(scaled(product(512, 768, 1024, e4m3, bf16), vector, one))},
      {"function_of_rows", with_function(grouped(product(4096, 1024, 512, bf16, bf16), Grouping::m))},
      {"function_of_depth", with_function(grouped(product(1024, 512, 4096, bf16, f32, 1, false, true), Grouping::k))},
      {"packed", packed(with_epilogue(product(16, 4096, 4096, bf16, bf16)), WeightFormat::int4, 128, true)},
      {"packed_rows",
       split(packed(product(24, 512, 1024, f16, f32, 3), WeightFormat::int4, 1024), SplitKMode::parallel, 2)},
      {"packed_experts", packed(grouped(product(512, 2880, 2880, bf16, bf16), Grouping::m), WeightFormat::mxfp4, 32)},
      {"packed_nvfp4", packed(product(16, 4096, 4096, f16, f16), WeightFormat::nvfp4, 16)},
      {"packed_nvfp4_experts",
       packed(grouped(product(512, 2880, 2880, bf16, bf16), Grouping::m), WeightFormat::nvfp4, 16)},
      {"packed_bytes", packed(scaled(product(16, 4096, 4096, i8, bf16), vector, {}), WeightFormat::int4, 128, true)},
      {"packed_bytes_experts",
       packed(scaled(grouped(product(512, 2880, 2880, e4m3, bf16), Grouping::m), vector, {}), WeightFormat::mxfp4, 32)},
      {"packed_gates", packed(gates_of_weight, WeightFormat::int4, 128)},
      {"packed_function_of_gates",
       packed(with_gated_function(product(512, 1024, 512, bf16, bf16)), WeightFormat::int4, 64)},
      {"packed_function", with_function(packed(product(40, 1024, 512, bf16, bf16), WeightFormat::int4, 64))},
      {"function_of_gates", with_gated_function(product(512, 1024, 512, bf16, bf16))},
  };
}

/// Images of 56 x 56 (3-D: 12 x 12 x 12) pixels, filters of 3 x 3.
inline GemmProblem convolution(Conv kind, DType in, DType out, int64_t channels, int64_t filters, int32_t stride = 1,
                               int64_t groups = 1, bool deep = false, int32_t taps = 3) {
  const ConvAxis axis{
      .size = deep ? 12 : 56, .filter = taps, .stride = stride, .pad_begin = taps / 2, .pad_end = (taps - 1) / 2};
  const ConvLayout conv{.kind = kind,
                        .images = 8,
                        .channels = channels,
                        .filters = filters,
                        .axes = {deep ? axis : ConvAxis{}, axis, axis}};
  return implicit_gemm(conv, groups, in, out);
}

inline GemmProblem by_kernel(KernelFamily family, GemmProblem p) {
  p.kernel = family;
  return p;
}
inline GemmProblem portable(const GemmProblem& p) {
  return by_kernel(KernelFamily::portable, p);
}

inline std::vector<EmitCase> emit_conv_cases() {
  constexpr DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32, i8 = DType::i8;
  GemmProblem grouped = with_epilogue(convolution(Conv::fprop, bf16, f32, 64, 64, 1, 4));
  grouped.bias_stride_batch = 64;
  GemmProblem accumulated = convolution(Conv::wgrad, f16, f32, 128, 64);
  accumulated.has_c = true;
  accumulated.c = accumulated.d;
  ConvLayout embedding = convolution(Conv::dgrad, bf16, bf16, 3, 64, 4, 1, false, 4).conv;
  for (ConvAxis* const axis : {&embedding.axes[1], &embedding.axes[2]}) axis->pad_begin = axis->pad_end = 0;
  GemmProblem patches = implicit_gemm(embedding, 1, bf16, bf16);
  patches.bias = Bias::row;
  const ScaleLayout image{.kind = Scaling::vector}, filter{.kind = Scaling::vector, .stride_row = 1};
  GemmProblem quantised = scaled(convolution(Conv::fprop, DType::e4m3, DType::e4m3, 128, 128), image, filter);
  quantised.has_scale_d = quantised.has_amax = true;
  return {
      {"fprop", convolution(Conv::fprop, f16, f16, 128, 256)},
      {"fprop_one_tap", with_epilogue(convolution(Conv::fprop, bf16, bf16, 256, 64, 1, 1, false, 1))},
      {"fprop_strided", with_epilogue(convolution(Conv::fprop, bf16, bf16, 64, 128, 2))},
      {"fprop_groups", grouped},
      {"fprop_stem", convolution(Conv::fprop, f16, f16, 8, 64, 2, 1, false, 7)},
      {"fprop_deep", convolution(Conv::fprop, f16, f16, 64, 64, 1, 1, true)},
      {"fprop_int8", convolution(Conv::fprop, i8, DType::i32, 128, 128)},
      {"fprop_rgb", by_kernel(KernelFamily::sm90, convolution(Conv::fprop, f16, f16, 3, 64, 2, 1, false, 7))},
      {"fprop_portable", portable(with_epilogue(convolution(Conv::fprop, f16, f32, 3, 20, 2)))},
      {"fprop_split", split(convolution(Conv::fprop, f32, f32, 512, 64), SplitKMode::parallel, 4)},
      {"fprop_half_lines", convolution(Conv::fprop, f16, f16, 96, 128)},
      {"fprop_turned", with_epilogue(convolution(Conv::fprop, bf16, bf16, 256, 48))},
      {"dgrad", convolution(Conv::dgrad, f16, f16, 128, 256)},
      {"dgrad_strided", with_epilogue(convolution(Conv::dgrad, bf16, bf16, 128, 128, 2))},
      {"dgrad_bare", convolution(Conv::dgrad, bf16, bf16, 128, 128, 2, 1, false, 1)},
      {"dgrad_one_tap", convolution(Conv::dgrad, f16, f16, 64, 256, 1, 1, false, 1)},
      {"dgrad_stem", convolution(Conv::dgrad, f16, f16, 8, 64, 2, 1, false, 4)},
      {"dgrad_patches", patches},
      {"dgrad_deep", convolution(Conv::dgrad, f16, f16, 64, 64, 2, 1, true)},
      {"dgrad_groups", convolution(Conv::dgrad, f16, f16, 64, 64, 2, 2)},
      {"dgrad_half_lines", convolution(Conv::dgrad, f16, f16, 96, 96, 2)},
      {"dgrad_turned", convolution(Conv::dgrad, f16, f16, 48, 256)},
      {"dgrad_portable", portable(convolution(Conv::dgrad, f16, f16, 24, 40, 3))},
      {"dgrad_stream_k", split(convolution(Conv::dgrad, f16, f16, 128, 128, 2), SplitKMode::stream_k)},
      {"wgrad", convolution(Conv::wgrad, f16, f16, 128, 128, 2)},
      {"wgrad_split", split(accumulated, SplitKMode::parallel, 8)},
      {"wgrad_half_lines", convolution(Conv::wgrad, f16, f16, 96, 128)},
      {"wgrad_turned", convolution(Conv::wgrad, f16, f16, 960, 320)},
      {"wgrad_stem", convolution(Conv::wgrad, f16, f32, 8, 64, 2, 1, false, 7)},
      {"wgrad_rgb", by_kernel(KernelFamily::sm90, convolution(Conv::wgrad, f16, f32, 3, 64, 2, 1, false, 7))},
      {"wgrad_groups", convolution(Conv::wgrad, f16, f16, 32, 32, 1, 4)},
      {"fprop_fp8", quantised},
      {"fprop_scaled", scaled(convolution(Conv::fprop, i8, f16, 64, 128, 2), image, filter)},
      {"fprop_function", with_function(convolution(Conv::fprop, bf16, bf16, 64, 128, 2))},
      {"fprop_groups_function", with_function(convolution(Conv::fprop, bf16, f32, 64, 64, 1, 4))},
      {"dgrad_function", with_function(convolution(Conv::dgrad, bf16, bf16, 128, 128, 2))},
      {"dgrad_stem_function", with_function(convolution(Conv::dgrad, f16, f16, 8, 64, 2, 1, false, 4))},
      {"wgrad_function", with_function(convolution(Conv::wgrad, f16, f32, 128, 128, 2))},
      {"wgrad_turned_function", with_function(convolution(Conv::wgrad, f16, f16, 960, 320))},
      {"wgrad_groups_function", with_function(convolution(Conv::wgrad, f16, f16, 32, 32, 1, 4))},
  };
}

inline std::vector<EmitCase> emit_conv_reduction_cases() {
  constexpr DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32;
  return {
      {"fprop_reduced", with_reductions(convolution(Conv::fprop, bf16, bf16, 64, 128, 2), over_rows())},
      {"fprop_groups_reduced", with_reductions(convolution(Conv::fprop, bf16, f32, 64, 64, 1, 4), over_columns())},
      {"dgrad_reduced", with_reductions(convolution(Conv::dgrad, bf16, bf16, 128, 128, 2), over_columns())},
      {"wgrad_reduced", with_reductions(convolution(Conv::wgrad, f16, f32, 128, 128, 2), over_rows())},
      {"wgrad_groups_reduced", with_reductions(convolution(Conv::wgrad, f16, f16, 32, 32, 1, 4), over_columns())},
  };
}

}  // namespace cleave
