// What a convolution is as a product.

#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "conv_problems.h"
#include "problem/arguments.h"
#include "problem/conv.h"
#include "problem/placement.h"
#include "problem/problem.h"

namespace cleave {
namespace {

TEST(ConvProblem, OutputsOfAnAxis) {
  EXPECT_EQ(outputs({.size = 56, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1}), 28);
  EXPECT_EQ(outputs({.size = 5, .filter = 3, .dilation = 2}), 1);
  EXPECT_EQ(outputs({.size = 4, .filter = 3, .dilation = 2}), 0);
  EXPECT_EQ(outputs({.size = 4, .filter = 7, .stride = 4}), 0) << "not rounded to the first";
  EXPECT_EQ(outputs({.size = 7, .filter = 3, .stride = 5}), 1);
  EXPECT_EQ(outputs({.size = 8, .filter = 3, .stride = 5}), 2);
  EXPECT_EQ(outputs({.size = 0, .pad_begin = 2}), 2);
}

TEST(ConvProblem, CountsStopAtTheLargest) {
  ConvLayout conv = good_layout(Conv::fprop);
  EXPECT_EQ(image_pixels(conv), 2 * 9 * 8);
  EXPECT_EQ(output_pixels(conv), 2 * 5 * 4);
  EXPECT_EQ(taps(conv), 6);
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (ConvAxis& axis : conv.axes) axis = {.size = kMost, .filter = kMost};
  EXPECT_EQ(image_pixels(conv), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(taps(conv), std::numeric_limits<int64_t>::max());
  conv.images = 0;
  EXPECT_EQ(image_pixels(conv), 0);
}

TEST(ConvProblem, MatricesOfPackedTensors) {
  // Three groups of 6 channels and 10 filters: 18 and 30 in all, 36 elements of a filter.
  const auto expect = [](const MatrixLayout& x, int64_t row, int64_t col, int64_t batch) {
    EXPECT_EQ(x.stride_row, row);
    EXPECT_EQ(x.stride_col, col);
    EXPECT_EQ(x.stride_batch, batch);
  };
  GemmProblem p = good_conv(Conv::fprop, 3);
  EXPECT_EQ((std::array{p.m, p.n, p.k, p.batch}), (std::array<int64_t, 4>{40, 10, 36, 3}));
  expect(p.a, 18, 1, 6);
  expect(p.b, 1, 36, 360);
  expect(p.d, 30, 1, 10);
  p = good_conv(Conv::dgrad, 3);
  EXPECT_EQ((std::array{p.m, p.n, p.k, p.batch}), (std::array<int64_t, 4>{144, 6, 60, 3}));
  expect(p.a, 30, 1, 10);
  expect(p.b, 36, 1, 360);
  expect(p.d, 18, 1, 6);
  p = good_conv(Conv::wgrad, 3);
  EXPECT_EQ((std::array{p.m, p.n, p.k, p.batch}), (std::array<int64_t, 4>{10, 36, 40, 3}));
  expect(p.a, 1, 30, 10);
  expect(p.b, 18, 1, 6);
  expect(p.d, 36, 1, 360);
  EXPECT_EQ(p.c, p.d);
}

TEST(ConvProblem, OperandsAreWholeTensors) {
  const int64_t x = 2 * 9 * 8 * 6, y = 2 * 5 * 4 * 10, w = 10 * 6 * 6;
  const auto elements = [](const Placement& place) { return place.rows * place.columns * place.batch; };
  GemmProblem p = good_conv(Conv::fprop, 3);
  EXPECT_EQ(elements(a_of(p)), 3 * x);
  EXPECT_EQ(elements(b_of(p)), 3 * w);
  EXPECT_EQ(elements(d_of(p)), 3 * y);
  p = good_conv(Conv::dgrad, 3);
  EXPECT_EQ(elements(a_of(p)), 3 * y);
  EXPECT_EQ(elements(b_of(p)), 3 * w);
  EXPECT_EQ(elements(d_of(p)), 3 * x);
  p = good_conv(Conv::wgrad, 3);
  EXPECT_EQ(elements(a_of(p)), 3 * y);
  EXPECT_EQ(elements(b_of(p)), 3 * x);
  EXPECT_EQ(elements(d_of(p)), 3 * w);
}

TEST(ConvProblem, WorkIsTheSameOfEveryKind) {
  for (const Conv kind : kConvs) {
    EXPECT_EQ(flops(good_conv(kind, 3)), 2.0 * 40 * 10 * 36 * 3);
    EXPECT_EQ(minimum_bytes(good_conv(kind, 3)), 2.0 * 3 * (144 * 6 + 40 * 10 + 360));
  }
}

TEST(ConvProblem, PixelsThatNoTapReadsCostNoBytes) {
  ConvLayout conv{.kind = Conv::fprop,
                  .images = 1,
                  .channels = 8,
                  .filters = 8,
                  .axes = {{}, {.size = 8, .stride = 2}, {.size = 6, .stride = 3}}};
  const auto bytes = [&](Conv kind) {
    conv.kind = kind;
    return minimum_bytes(implicit_gemm(conv, 1, DType::f16, DType::f16));
  };
  EXPECT_EQ(bytes(Conv::fprop), 2.0 * (8 * 8 + 8 * 8 + 64));
  EXPECT_EQ(bytes(Conv::wgrad), 2.0 * (8 * 8 + 8 * 8 + 64));
  EXPECT_EQ(bytes(Conv::dgrad), 2.0 * (48 * 8 + 8 * 8 + 64)) << "all of dx is written";
}

TEST(ConvProblem, AGroupIsAConvolutionOfItsOwn) {
  for (const Conv kind : kConvs) {
    GemmProblem p = good_conv(kind, 3);
    p.has_c = true;
    p.bias_stride_batch = 5;
    const GemmProblem one = one_group(p);
    EXPECT_EQ(one.batch, 1);
    EXPECT_EQ(std::tuple(one.m, one.n, one.k), std::tuple(p.m, p.n, p.k));
    EXPECT_EQ(one.a.stride_row, p.a.stride_row);
    alignas(16) static uint16_t memory[1000];
    GemmArguments all{.a = memory, .b = memory + 16, .c = memory + 32, .d = memory + 48, .bias = memory + 64};
    p.bias_dtype = DType::f32;
    const GemmArguments own = group_of(p, all, 2);
    EXPECT_EQ(own.a, memory + 2 * p.a.stride_batch);
    EXPECT_EQ(own.b, memory + 16 + 2 * p.b.stride_batch);
    EXPECT_EQ(own.c, memory + 32 + 2 * p.c.stride_batch);
    EXPECT_EQ(own.d, memory + 48 + 2 * p.d.stride_batch);
    EXPECT_EQ(own.bias, reinterpret_cast<float*>(memory + 64) + 2 * 5);
    EXPECT_EQ(own.scale_a, nullptr);
    for (const MatrixLayout GemmProblem::* matrix : {&GemmProblem::a, &GemmProblem::b, &GemmProblem::d}) {
      EXPECT_EQ((p.*matrix).stride_batch * 2 % (one.*matrix).alignment, 0);
      EXPECT_EQ((one.*matrix).stride_batch, 0);
    }
  }
}

TEST(ConvProblem, ArgumentsAreKeptApartAsWholeTensors) {
  alignas(16) static uint16_t memory[864 + 400 + 360 + 16];
  uint16_t* const x = memory;
  uint16_t* const y = x + 864;
  uint16_t* const w = y + 400;
  const auto refusal = [](const GemmProblem& p, const GemmArguments& arguments) -> std::string {
    try {
      check_arguments(p, arguments);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(good_conv(Conv::fprop), {.a = x, .b = w, .d = y}), "");
  EXPECT_EQ(refusal(good_conv(Conv::dgrad), {.a = y, .b = w, .d = x}), "");
  EXPECT_EQ(refusal(good_conv(Conv::wgrad), {.a = y, .b = x, .d = w}), "");
  EXPECT_NE(refusal(good_conv(Conv::fprop), {.a = x, .b = w, .d = y - 8}).find("d overlaps a"), std::string::npos)
      << "the last pixel of x";
  EXPECT_NE(refusal(good_conv(Conv::dgrad), {.a = y, .b = x + 856, .d = x}).find("d overlaps b"), std::string::npos);
}

}  // namespace
}  // namespace cleave
