// The rules of convolutions.

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "conv_problems.h"
#include "gemm_problems.h"

namespace cleave {
namespace {

constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

/// A layout that breaks a rule is refused as a problem.
void expect_layout_refusal(const ConvLayout& conv, const std::vector<std::string>& parts) {
  expect_refusal(implicit_gemm(conv, 1, DType::bf16, DType::bf16), parts);
}

TEST(ValidateConv, AcceptsWhatImplicitGemmMakes) {
  for (const Conv kind : kConvs) {
    for (const int64_t groups : {1, 3}) {
      for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
        for (const DType output : {DType::f16, DType::bf16, DType::f32}) {
          GemmProblem p = implicit_gemm(good_layout(kind), groups, type, output);
          EXPECT_EQ(validate(p), kFine) << to_string(kind);
          p.has_c = true;
          p.epilogue = epilogue_of(Activation::silu);
          p.conv.division = Division::fast_load;
          EXPECT_EQ(validate(p), kFine) << to_string(kind);
          if (kind == Conv::wgrad) continue;
          p.bias = Bias::row;
          p.bias_stride_batch = p.n;
          EXPECT_EQ(validate(p), kFine) << to_string(kind);
        }
      }
    }
  }
}

TEST(ValidateConv, AcceptsIntegersForward) {
  GemmProblem p = implicit_gemm(good_layout(Conv::fprop), 2, DType::i8, DType::i32);
  EXPECT_EQ(validate(p), kFine);
  for (const Conv kind : {Conv::dgrad, Conv::wgrad}) {
    p = implicit_gemm(good_layout(kind), 1, DType::i8, DType::f32);
    expect_refusal(p, {"a is int8", std::string(to_string(kind))});
  }
}

TEST(ValidateConv, AcceptsEmptyTensors) {
  for (const Conv kind : kConvs) {
    for (int64_t ConvLayout::* size : {&ConvLayout::images, &ConvLayout::channels, &ConvLayout::filters}) {
      ConvLayout conv = good_layout(kind);
      conv.*size = 0;
      EXPECT_EQ(validate(implicit_gemm(conv, 2, DType::f16, DType::f16)), kFine);
    }
    ConvLayout conv = good_layout(kind);
    conv.axes[2] = {.size = 0, .filter = 4};
    EXPECT_EQ(validate(implicit_gemm(conv, 2, DType::f16, DType::f16)), kFine) << "no outputs";
    conv.axes[2] = {.size = 0, .filter = 2, .pad_begin = 1, .pad_end = 3};
    EXPECT_EQ(validate(implicit_gemm(conv, 2, DType::f16, DType::f16)), kFine) << "outputs of 0";
    EXPECT_EQ(validate(implicit_gemm(good_layout(kind), 0, DType::f16, DType::f16)), kFine);
  }
}

TEST(ValidateConv, AcceptsSlicesOfWiderTensors) {
  GemmProblem p = good_conv(Conv::dgrad, 2);
  p.a.stride_row = 100;
  p.d.stride_row = p.c.stride_row = 64;
  EXPECT_EQ(validate(p), kFine);
  p.d.stride_row = 11;
  expect_refusal(p, {"d overlaps itself"});
}

TEST(ValidateConv, NumbersOfAnAxis) {
  const auto refuse = [](int32_t ConvAxis::* number, int32_t value, const std::vector<std::string>& parts) {
    ConvLayout conv = good_layout(Conv::fprop);
    conv.axes[1].*number = value;
    expect_layout_refusal(conv, parts);
  };
  refuse(&ConvAxis::size, -1, {"size of the image along the height is -1", "0 or more"});
  refuse(&ConvAxis::filter, 0, {"size of the filter along the height is 0", "1 or more"});
  refuse(&ConvAxis::stride, 0, {"stride along the height is 0", "1 or more"});
  refuse(&ConvAxis::dilation, -2, {"dilation along the height is -2", "1 or more"});
  refuse(&ConvAxis::pad_begin, -1, {"padding before the image along the height is -1"});
  refuse(&ConvAxis::pad_end, -1, {"padding after the image along the height is -1"});
  refuse(&ConvAxis::pad_end, kMost, {"image with its padding spans 2147483657 pixels", "height"});
  refuse(&ConvAxis::dilation, kMost, {"filter with its dilation spans 4294967295 pixels"});
  refuse(&ConvAxis::filter, 12, {"output is of size zero", "spans 12 pixels (12 taps, dilation 1)", "(1 + 9 + 1)"});
}

TEST(ValidateConv, NumbersThatKernelsCannotCount) {
  ConvLayout conv = good_layout(Conv::fprop);
  conv.images = -1;
  expect_layout_refusal(conv, {"has -1 images", "0 to 2^29"});
  conv.images = int64_t(kMost) + 1;
  expect_layout_refusal(conv, {"has 2147483648 images", "Split the batch"});
  conv = good_layout(Conv::fprop);
  conv.images = kMost / 72;
  conv.channels = conv.filters = 1;
  EXPECT_EQ(validate(implicit_gemm(conv, 1, DType::bf16, DType::bf16)), kFine);
  ++conv.images;
  expect_layout_refusal(conv, {"has 2147483664 pixels in its images"});
  conv = good_layout(Conv::wgrad);
  for (ConvAxis& axis : conv.axes) axis = {.size = 1 << 29};
  const Refusals overflown = validate(implicit_gemm(conv, 1, DType::bf16, DType::bf16));
  ASSERT_EQ(overflown.size(), 2u);
  expect_parts(overflown[0], {"has 2^63 or more pixels in its images"});

  conv = good_layout(Conv::dgrad);
  conv.filters = kMost / 6 + 1;
  expect_layout_refusal(conv, {"has 2147483652 taps x filters"});
  conv = good_layout(Conv::wgrad);
  conv.channels = kMost / 6 + 1;
  expect_layout_refusal(conv, {"has 2147483652 taps x channels"});
}

TEST(ValidateConv, ClassesOfDgradAreLimited) {
  ConvLayout conv = good_layout(Conv::dgrad);
  conv.axes[1] = {.size = 256, .filter = 3, .stride = 300};
  conv.axes[2] = {.size = 300, .filter = 3, .stride = 256};
  EXPECT_EQ(validate(implicit_gemm(conv, 1, DType::bf16, DType::bf16)), kFine);
  conv.axes[2].stride = 257;
  expect_layout_refusal(conv, {"strides are 1 x 300 x 257", "at most 65536"});
  conv.kind = Conv::fprop;
  EXPECT_EQ(validate(implicit_gemm(conv, 1, DType::bf16, DType::bf16)), kFine);
}

TEST(ValidateConv, SizesAreThoseOfTheConvolution) {
  for (int64_t GemmProblem::* size : {&GemmProblem::m, &GemmProblem::n, &GemmProblem::k}) {
    GemmProblem p = good_conv(Conv::fprop);
    p.*size -= 1;
    expect_refusal(p, {"m, n and k are", "fprop are 40, 10 and 36", "implicit_gemm"});
  }
}

TEST(ValidateConv, ChannelsAreNeighbours) {
  const auto refuse = [](Conv kind, const std::vector<std::string>& parts,
                         const std::function<void(GemmProblem&)>& change) {
    GemmProblem p = good_conv(kind);
    change(p);
    expect_refusal(p, parts);
  };
  const auto turn = [](MatrixLayout& x) { x.stride_row = 1, x.stride_col = 1000; };
  refuse(Conv::fprop, {"a's channels are 1000 elements apart", "channels_last"}, [&](GemmProblem& p) { turn(p.a); });
  refuse(Conv::fprop, {"b's taps and channels are 10 elements apart"},
         [](GemmProblem& p) { p.b.stride_row = 10, p.b.stride_col = 1; });
  refuse(Conv::dgrad, {"b's taps and channels are 1000 elements apart"}, [&](GemmProblem& p) { turn(p.b); });
  refuse(Conv::dgrad, {"d's channels are 1000 elements apart"}, [&](GemmProblem& p) { turn(p.d); });
  refuse(Conv::wgrad, {"a's channels are 40 elements apart"},
         [](GemmProblem& p) { p.a.stride_row = 40, p.a.stride_col = 1; });
  refuse(Conv::wgrad, {"b's channels are 1000 elements apart"}, [&](GemmProblem& p) { turn(p.b); });

  GemmProblem p = good_conv(Conv::fprop);
  p.has_c = true;
  turn(p.c);
  const Refusals messages = validate(p);
  ASSERT_EQ(messages.size(), 2u);
  expect_parts(messages[0], {"c and d must both be row-major"});
  expect_parts(messages[1], {"c's channels are 1000 elements apart"});

  ConvLayout conv = good_layout(Conv::fprop);
  conv.channels = 1;
  p = implicit_gemm(conv, 1, DType::bf16, DType::bf16);
  p.a.stride_col = 1000;
  EXPECT_EQ(validate(p), kFine) << "one channel has no neighbour";
}

TEST(ValidateConv, Types) {
  GemmProblem p;
  for (const DType type : {DType::e4m3, DType::i8}) {
    for (const DType out : {type, DType::bf16})
      EXPECT_TRUE(validate(implicit_gemm(good_layout(Conv::fprop), 1, type, out)).empty());
    p = implicit_gemm(good_layout(Conv::wgrad), 1, type, DType::bf16);
    expect_refusal(p, {"which only fprop serves, but this is wgrad"});
  }
  p = implicit_gemm(good_layout(Conv::dgrad), 1, DType::bf16, DType::i8);
  expect_refusal(p, {"d is int8, which only fprop stores"});
  p = good_conv(Conv::fprop);
  p.b.dtype = DType::f16;
  expect_refusal(p, {"a is bfloat16 and b is float16"});
}

TEST(ValidateConv, WhatDoesNotGoWithIt) {
  GemmProblem p = implicit_gemm(good_layout(Conv::fprop), 1, DType::i8, DType::bf16);
  p.scale_a = p.scale_b = {.kind = Scaling::vector, .stride_row = 1};
  expect_refusal(p, {"scale_a is a vector; a convolution has one scale for all of a"});
  p.scale_a = p.scale_b = {.kind = Scaling::block, .stride_row = 1};
  EXPECT_EQ(validate(p).size(), 2u);
  p.scale_a = p.scale_b = {};
  p.has_zero = true;
  expect_refusal(p, {"a convolution has no azp_adj"});
  p = good_conv(Conv::dgrad);
  p.has_amax = true;
  expect_refusal(p, {"a gradient of a convolution has no amax"});

  p = good_conv(Conv::fprop);
  p.bias = Bias::column;
  expect_refusal(p, {"bias is a column", "must be a row"});
  p = good_conv(Conv::wgrad);
  p.bias = Bias::row;
  expect_refusal(p, {"bias is given", "wgrad has none"});
  p = good_conv(Conv::dgrad);
  p.groups = {.dimension = Grouping::classes};
  EXPECT_EQ(validate(p).size(), 2u);

  p = good();
  p.conv.images = 3;
  expect_refusal(p, {"conv describes no kind of convolution", "conv.kind"});
  p = good();
  p.groups.dimension = Grouping::classes;
  expect_refusal(p, {"groups.dimension is classes", "set conv"});
}

}  // namespace
}  // namespace cleave
