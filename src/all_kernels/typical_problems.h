// Problems that no size of theirs makes special, of every kind: what kernels are listed by (all_configs.h).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cleave/conv.h"
#include "cleave/core/reduction.h"
#include "cleave/epilogue.h"
#include "launch/product.h"

namespace cleave::typical {

inline constexpr Major kMajors[] = {Major::k, Major::mn};
inline constexpr Conv kConvs[] = {Conv::fprop, Conv::dgrad, Conv::wgrad};

inline MatrixLayout matrix(DType type, bool rows, int64_t m, int64_t n, uint32_t alignment = 16) {
  return rows ? MatrixLayout{type, n, 1, 0, alignment} : MatrixLayout{type, 1, m, 0, alignment};
}

/// A problem that no dimension of makes special; `a`, `b`: types of the operands.
inline GemmProblem product(DType a, DType b, DType d, Major a_major = Major::k, Major b_major = Major::k,
                           uint32_t alignment = 16) {
  GemmProblem p;
  p.m = p.n = 1024;
  p.k = 4096;
  p.a = matrix(a, a_major == Major::k, p.m, p.k, alignment);
  p.b = matrix(b, b_major == Major::mn, p.k, p.n, alignment);
  p.c = p.d = matrix(d, true, p.m, p.n);
  p.bias_dtype = DType::f32;
  return p;
}

inline constexpr ScaleLayout kVector{.kind = Scaling::vector, .stride_row = 1};
inline constexpr ScaleLayout kLines{.kind = Scaling::block, .rows = 1, .stride_row = 1};
inline constexpr ScaleLayout kSquares{.kind = Scaling::block, .rows = 128, .stride_row = 1};

inline GemmProblem scaled(DType a, DType b, DType d, ScaleLayout scale_a, ScaleLayout scale_b, bool fast = false) {
  GemmProblem p = product(a, b, d);
  p.scale_a = scale_a;
  p.scale_b = scale_b;
  p.fast_accumulation = fast;
  return p;
}

/// B of 4 bits.
inline GemmProblem weights(DType type, DType d, int64_t group, bool has_zero, Major a_major = Major::k,
                           WeightFormat format = WeightFormat::int4) {
  GemmProblem p = product(type, type, d, a_major);
  p.weights_b = {.format = format, .has_zero = has_zero, .group = group, .scale_stride_k = p.n};
  return p;
}

/// As a mixture of experts has it.
inline GemmProblem grouped(GemmProblem p, Grouping dimension) {
  p.batch = 64;
  p.groups.dimension = dimension;
  if (dimension == Grouping::m) p.b.stride_batch = p.k * p.n;
  if (dimension == Grouping::n) p.a.stride_batch = p.m * p.k;
  if (dimension == Grouping::k) p.c.stride_batch = p.d.stride_batch = p.m * p.n;
  return p;
}

/// As a layer has it: with a bias, a C and an activation.
inline GemmProblem as_layer(GemmProblem p, Activation activation) {
  p.bias = Bias::row;
  p.has_c = true;
  p.epilogue = epilogue_of(activation);
  return p;
}

/// As the first product of a feed-forward has it: gates beside what they multiply.
inline GemmProblem with_swiglu(GemmProblem p) {
  p.epilogue = epilogue_of(Activation::swiglu);
  p.b.stride_batch = 0;
  return p;
}

inline GemmProblem convolution(Conv kind, DType in, DType out, int32_t stride, bool depth = false,
                               Division division = Division::automatic) {
  const ConvAxis axis{.size = 28, .filter = 3, .stride = stride, .pad_begin = 1, .pad_end = 1};
  const ConvLayout conv{.kind = kind,
                        .images = 8,
                        .channels = 256,
                        .filters = 256,
                        .axes = {depth ? axis : ConvAxis{}, axis, axis},
                        .division = division};
  return implicit_gemm(conv, 1, in, out);
}

inline GemmProblem convolution_of(Conv kind, int64_t channels, int64_t filters) {
  ConvLayout conv = convolution(kind, DType::f16, DType::f16, 2).conv;
  conv.channels = channels;
  conv.filters = filters;
  return implicit_gemm(conv, 1, DType::f16, DType::f16);
}

inline GemmProblem patch_embedding(int32_t size, DType out, bool depth = false) {
  const ConvAxis axis{.size = 8 * size, .filter = size, .stride = size};
  const ConvLayout conv{
      .kind = Conv::dgrad, .images = 8, .channels = 3, .filters = 768, .axes = {depth ? axis : ConvAxis{}, axis, axis}};
  return implicit_gemm(conv, 1, DType::bf16, out);
}

/// A layer with an epilogue function whose inputs have every shape, and with a second output.
inline GemmProblem with_function(GemmProblem p) {
  p.epilogue.function = &epilogue_function(R"(
    bias row
    scale scalar
    weight column
    residual matrix
    %0 = multiply acc scale
    %1 = add %0 bias
    %2 = negative %1
    %3 = exp %2
    %4 = add %3 1
    %5 = divide %1 %4
    %6 = multiply %5 weight
    d = add %6 residual
    pre = %1)");
  // Each group, a convolution's too, has values of its own where it may.
  const bool is_conv = p.conv.kind != Conv::none;
  const auto vector = [&](InputShape shape, int64_t own, bool cut) {
    return EpilogueLayout{.shape = shape,
                          .dtype = DType::f32,
                          .alignment = 4,
                          .stride = 1,
                          .stride_batch = p.batch > 1 && !cut ? own : 0};
  };
  const EpilogueLayout matrix{
      .dtype = p.d.dtype, .alignment = 16, .stride = p.d.stride_row, .stride_batch = p.d.stride_batch};
  p.epilogue.inputs[0] = vector(InputShape::row, p.n, p.groups.dimension == Grouping::n);
  p.epilogue.inputs[1] = vector(InputShape::scalar, 1, is_conv);
  p.epilogue.inputs[2] = vector(InputShape::column, p.m, p.groups.dimension == Grouping::m || is_conv);
  p.epilogue.inputs[3] = p.epilogue.outputs[0] = matrix;
  return p;
}

/// Groups of rows that a list names, each eight times.
inline GemmProblem listed(GemmProblem p) {
  p.gather = {.given = true, .rows = p.m / 8, .divisor = 8};
  return p;
}

/// One whose inputs and outputs are all matrices.
inline GemmProblem with_matrices(GemmProblem p, const char* function) {
  p.epilogue.function = &epilogue_function(function);
  const EpilogueLayout matrix{.dtype = p.d.dtype, .alignment = 16, .stride = p.d.stride_row};
  std::fill_n(p.epilogue.inputs, p.epilogue.function->inputs().size(), matrix);
  std::fill_n(p.epilogue.outputs, p.epilogue.function->outputs().size() - 1, matrix);
  return p;
}

/// One that reduces D, to a value for each row (of grouped columns: for each column), and for all of it or of a group.
inline GemmProblem with_reductions(GemmProblem p) {
  const Grouping grouping = p.groups.dimension;
  const bool by_column = grouping == Grouping::n, cut = by_column || grouping == Grouping::m;
  const char* const x = is_gated(p) ? "acc.gate" : "acc";
  const char* const y = is_gated(p) ? "acc.up" : "acc";
  p.epilogue.function =
      &epilogue_function(fmt::format("%0 = multiply {0} {1}\nd = {0}\nnorm = sum {2} %0\namax = absmax scalar {1}", x,
                                     y, by_column ? "row" : "column"));
  const auto line = [&](InputShape shape, int64_t length) {
    const bool own = cut ? is_over_groups(grouping, shape) : p.conv.kind == Conv::none;
    return EpilogueLayout{.shape = shape, .alignment = 4, .stride = 1, .stride_batch = p.batch > 1 && own ? length : 0};
  };
  p.epilogue.outputs[0] = by_column ? line(InputShape::row, p.n) : line(InputShape::column, p.m);
  p.epilogue.outputs[1] = line(InputShape::scalar, 1);
  return p;
}

inline constexpr const char* kErrorFunction = R"(
    residual matrix
    %0 = erf acc
    %1 = multiply %0 acc
    d = add %1 residual
    pre = acc)";
inline constexpr const char* kManyMatrices = R"(
    x matrix
    y matrix
    z matrix
    %0 = multiply acc x
    %1 = multiply y z
    d = add %0 %1
    e = add acc y
    f = multiply acc z)";

/// A gate with limits, whose two sums the function joins.
inline GemmProblem with_gate(GemmProblem p) {
  p.epilogue.function = &epilogue_function(R"(
    limit scalar
    %0 = minimum acc.gate limit
    %1 = negative limit
    %2 = maximum acc.up %1
    %3 = minimum %2 limit
    %4 = multiply %0 1.702
    %5 = sigmoid %4
    %6 = multiply %0 %5
    %7 = add %3 1
    d = multiply %6 %7
    kept = %0)");
  p.epilogue.gates = Gates::halves;
  p.epilogue.inputs[0] = {.shape = InputShape::scalar, .dtype = DType::f32, .alignment = 4};
  p.epilogue.outputs[0] = {.dtype = p.d.dtype, .alignment = 16, .stride = p.d.stride_row};
  p.b.stride_batch = 0;
  return p;
}

/// float32 as it is or in parts: the portable kernel with another multiplication.
inline GemmProblem with(Precision precision, GemmProblem p) {
  p.precision = precision;
  return p;
}

}  // namespace cleave::typical
