// Every rule of a problem.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cleave/device.h"
#include "cleave/names.h"
#include "gemm_problems.h"
#include "problem/rules.h"

namespace cleave {
namespace {

constexpr int64_t kHuge = int64_t(1) << 31;

TEST(Validate, AcceptsGoodProblems) {
  EXPECT_EQ(validate(good()), kFine);

  GemmProblem p = good();
  p.a.stride_batch = p.b.stride_batch = 0;  // both broadcast
  EXPECT_EQ(validate(p), kFine);

  p = good();
  p.a = column_major(30, 1500);
  p.b = column_major(50, 1000);
  p.c = p.d = column_major(20 * 3, 20);  // batch entries stacked along the contiguous dimension
  p.m = 20;
  p.n = 30;
  p.has_c = true;
  EXPECT_EQ(validate(p), kFine);

  for (const auto mode :
       {SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster, SplitKMode::stream_k, SplitKMode::automatic}) {
    p = good();
    p.split_k_mode = mode;
    p.split_k_slices = 16;
    EXPECT_EQ(validate(p), kFine);
  }
}

TEST(Validate, EmptyTensorsAreFine) {
  for (const int empty : {0, 1, 2, 3}) {
    GemmProblem p = good();
    (empty == 0 ? p.m : empty == 1 ? p.n : empty == 2 ? p.k : p.batch) = 0;
    p.split_k_slices = empty == 2 ? 7 : 0;
    EXPECT_EQ(validate(p), kFine) << empty;
  }
  // The strides of a tensor without elements mean nothing; D is not empty when only K is 0.
  GemmProblem p = good();
  p.k = 0;
  p.a.stride_row = p.b.stride_row = -7;
  EXPECT_EQ(validate(p), kFine);
  p.d.stride_row = 5;
  expect_refusal(p, {"d overlaps itself"});
}

TEST(Validate, DimensionsOfSizeOneMayHaveAnyStride) {
  GemmProblem p = good();
  p.batch = 1;
  for (MatrixLayout* layout : {&p.a, &p.b, &p.c, &p.d}) layout->stride_batch = -5;
  p.m = 1;
  p.a.stride_row = p.d.stride_row = p.c.stride_row = 0;
  p.a.stride_col = 9;  // a column of a wider matrix
  EXPECT_EQ(validate(p), kFine);
}

TEST(Validate, Sizes) {
  GemmProblem p = good();
  p.m = -4;
  expect_refusal(p, {"m is -4", "negative"});
  p = good();
  p.k = kHuge;
  expect_refusal(p, {"k is 2147483648", "2147483647"});
  p = good();
  p.batch = -1;
  expect_refusal(p, {"batch is -1"});
  p = good();
  p.m = p.n = kHuge - 1;
  p.a.stride_batch = p.b.stride_batch = 0;
  p.batch = 1;
  p.b.stride_row = p.d.stride_row = kHuge;
  expect_refusal(p, {"work units", "2147483647"});
}

TEST(Validate, OffsetsFit64Bits) {
  GemmProblem p = good();
  p.a.stride_row = int64_t(1) << 58;  // 29 * 2^58 elements of 2 bytes
  expect_refusal(p, {"a spans more than 2^63 bytes"});
  p.a.stride_row = int64_t(1) << 56;
  EXPECT_EQ(validate(p), kFine);
}

TEST(Validate, Strides) {
  GemmProblem p = good();
  p.a.stride_row = -50;
  expect_refusal(p, {"a.stride_row is -50", "contiguous copy"});
  p = good();
  p.b.stride_col = 2;
  expect_refusal(p, {"b.stride_row is 20", "b.stride_col is 2", "one of them must be 1"});
  p = good();
  p.b.stride_row = 0;
  expect_refusal(p, {"b.stride_row is 0", "Set it to the elements from one to the next"});
  p = good();
  p.d.stride_batch = 0;
  expect_refusal(p, {"d.stride_batch is 0"});
  p = good();
  p.d.stride_row = 19;
  expect_refusal(p, {"d overlaps itself", "19, 1 and 600"});
  p = good();
  p.d.stride_batch = 599;
  expect_refusal(p, {"d overlaps itself", "599"});
}

TEST(Validate, CMustHaveTheOrderOfD) {
  GemmProblem p = good();
  p.c = column_major(30, 600);
  EXPECT_EQ(validate(p), kFine) << "C takes no part";
  p.has_c = true;
  expect_refusal(p, {"c.stride_row is 1", "d's are 20 and 1", "Copy c"});
  p.d = column_major(30, 600);
  EXPECT_EQ(validate(p), kFine);
  p.c.stride_batch = 0;  // read only: it may broadcast
  EXPECT_EQ(validate(p), kFine);
  p.c.stride_col = -30;
  expect_refusal(p, {"c.stride_col is -30"});
}

TEST(Validate, Types) {
  GemmProblem p = good();
  p.b.dtype = DType::f16;
  expect_refusal(p, {"a is bfloat16 and b is float16"});
  p = good();
  p.a.alignment = 12;
  expect_refusal(p, {"a.alignment is 12"});
  p = good();
  p.d.dtype = DType::f32;
  p.d.alignment = 2;
  expect_refusal(p, {"d.alignment is 2", "4 bytes of a float32"});
  p.d.alignment = 0;
  expect_refusal(p, {"d.alignment is 0"});
}

TEST(Validate, TypesThatGoTogether) {
  constexpr DType kAll[] = {DType::f16, DType::bf16, DType::f32, DType::i8, DType::e4m3, DType::e5m2, DType::i32};
  for (const DType a : kAll) {
    for (const DType b : kAll) {
      GemmProblem p = good();
      p.a.dtype = a;
      p.b.dtype = b;
      const bool fine = (a == b && a != DType::i32) || (is_fp8(a) && is_fp8(b));
      EXPECT_EQ(validate(p).empty(), fine) << to_string(a) << " and " << to_string(b);
      EXPECT_EQ(types_are_served(p), fine);
    }
  }
  GemmProblem p = good();
  p.a.dtype = DType::e4m3;
  p.b.dtype = DType::i8;
  expect_refusal(p, {"a is float8_e4m3fn and b is int8", "equal", "8-bit floats"});
  p.a.dtype = p.b.dtype = DType::i32;
  expect_refusal(p, {"a is int32 and b is int32", "of c and d only"});
  for (const DType type : {DType::i8, DType::e4m3, DType::e5m2, DType::i32}) {
    p = good();
    p.c.dtype = type;
    EXPECT_EQ(validate(p), kFine) << "C takes no part";
    p.has_c = true;
    expect_refusal(p, {"c is " + std::string(to_string(type)), "d's type, bfloat16", "Convert c"});
    EXPECT_FALSE(types_are_served(p));
    p = good();
    p.bias_dtype = type;
    EXPECT_EQ(validate(p), kFine) << "there is no bias";
    p.bias = Bias::row;
    expect_refusal(p, {"bias is " + std::string(to_string(type)), "Convert bias"});
    EXPECT_FALSE(types_are_served(p));
  }
  p = good();
  p.m = -1;
  EXPECT_FALSE(validate(p).empty());
  EXPECT_TRUE(types_are_served(p)) << "a size is no type";
}

TEST(Validate, Int32IsForExactSums) {
  GemmProblem p = good();
  p.d.dtype = DType::i32;
  expect_refusal(p, {"d is int32", "a is bfloat16"});
  p.a.dtype = p.b.dtype = DType::i8;
  p.has_zero = true;
  EXPECT_EQ(validate(p), kFine);

  p.bias = Bias::column;
  p.epilogue = epilogue_of(Activation::silu);
  p.has_amax = true;
  p.scale_a = p.scale_b = {.kind = Scaling::vector};
  expect_refusal(p, {"d is int32", "scale_a, scale_b, bias, activation, amax"});
}

TEST(Validate, CMayBeOfDsType) {
  for (const DType type : {DType::i8, DType::e4m3, DType::e5m2, DType::i32}) {
    GemmProblem p = good();
    p.a.dtype = p.b.dtype = DType::i8;
    p.has_c = true;
    p.c.dtype = p.d.dtype = type;
    EXPECT_EQ(validate(p), kFine) << to_string(type);
    p.c.dtype = DType::f32;
    if (type == DType::i32) {
      expect_refusal(p, {"c is float32", "d is int32", "Convert c"});
    } else {
      EXPECT_EQ(validate(p), kFine) << to_string(type);
    }
    p.c.dtype = type == DType::e4m3 ? DType::e5m2 : DType::e4m3;
    expect_refusal(p, {"c is " + std::string(to_string(p.c.dtype)), "Convert c"});
    EXPECT_FALSE(types_are_served(p));
  }
}

TEST(Validate, EightBitOutputs) {
  for (const DType type : {DType::i8, DType::e4m3, DType::e5m2}) {
    GemmProblem p = good_scaled();
    p.d.dtype = type;
    EXPECT_EQ(validate(p), kFine) << "scale_d is 1";
    p.has_scale_d = p.has_amax = true;
    EXPECT_EQ(validate(p), kFine);
  }
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    GemmProblem p = good_scaled();
    p.d.dtype = type;
    p.has_amax = true;
    EXPECT_EQ(validate(p), kFine);
    p.has_scale_d = true;
    expect_refusal(p, {"scale_d is given", "d is " + std::string(to_string(type))});
  }
}

TEST(Validate, ScalesOfDThatAreFound) {
  GemmProblem p = good_scaled();
  p.scale_out = {.kind = Scaling::block, .stride_row = 1, .stride_k = p.m, .stride_batch = p.m};
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    p.d.dtype = type;
    expect_refusal(p, {"out_scale is given", "d is " + std::string(to_string(type))});
  }
  p.d.dtype = DType::e4m3;
  EXPECT_EQ(validate(p), kFine);
  p.ue8m0_scale_out = true;
  EXPECT_EQ(validate(p), kFine);
  GemmProblem bad = p;
  bad.has_scale_d = true;
  expect_refusal(bad, {"scale_d is given beside out_scale"});
  bad = p;
  bad.scale_out.stride_row = 0;  // one value for all rows, as scales that are read may have it
  expect_refusal(bad, {"scale_out overlaps itself: with strides 0, "});
  p.scale_out = {};
  expect_refusal(p, {"ue8m0_scale_out (use_ue8m0) is set"});
}

TEST(Validate, ScalesOfBothOperands) {
  for (const DType type : {DType::i8, DType::e4m3, DType::e5m2}) {
    EXPECT_EQ(validate(good_scaled(type)), kFine);
    EXPECT_EQ(validate(good_blocks(type)), kFine);
  }
  GemmProblem p = good_scaled();
  p.scale_a.stride_row = p.scale_a.stride_batch = 0;  // one for all
  EXPECT_EQ(validate(p), kFine);
  p.scale_b = {};
  expect_refusal(p, {"scale_a.kind is vector", "scale_b.kind is none", "equal"});
  p.scale_b = good_blocks().scale_b;
  expect_refusal(p, {"scale_a.kind is vector", "scale_b.kind is block"});

  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    p = good_scaled(type);
    const Refusals messages = validate(p);
    ASSERT_EQ(messages.size(), 2u);
    expect_parts(messages[0], {"scale_a is given", "a is " + std::string(to_string(type))});
    expect_parts(messages[1], {"scale_b is given", "b is " + std::string(to_string(type))});
  }
}

TEST(Validate, BlocksOfScales) {
  for (const uint32_t rows_a : {1u, 128u}) {
    for (const uint32_t rows_b : {1u, 128u}) {
      GemmProblem p = good_blocks();
      p.scale_a.rows = rows_a;
      p.scale_b.rows = rows_b;
      EXPECT_EQ(validate(p), kFine);
    }
  }
  for (const uint32_t rows : {0u, 2u, 64u, 256u}) {
    GemmProblem p = good_blocks();
    p.scale_b.rows = rows;
    expect_refusal(p, {"scale_b.rows is " + std::to_string(rows), "1 or 128"});
  }
}

TEST(Validate, StridesOfScales) {
  GemmProblem p = good_scaled();
  p.scale_b.stride_row = -1;
  expect_refusal(p, {"scale_b.stride_row is -1", "contiguous copy of scale_b"});
  p.n = 1;
  p.d.stride_row = 20;
  EXPECT_EQ(validate(p), kFine) << "one column has no next one";
  p = good_scaled();
  p.scale_a.stride_batch = -30;
  expect_refusal(p, {"scale_a.stride_batch is -30"});
  p = good_blocks();
  p.scale_a.stride_k = -3;
  expect_refusal(p, {"scale_a.stride_k is -3"});
  p = good_blocks();
  p.scale_a.stride_k = int64_t(1) << 60;
  expect_refusal(p, {"scale_a spans more than 2^63 bytes"});
  p = good_blocks();
  p.scale_b.stride_row = -3;  // 20 columns are one block
  EXPECT_EQ(validate(p), kFine);
}

TEST(Validate, ZeroPointsAreForIntegers) {
  GemmProblem p = good_scaled();
  p.has_zero = true;
  EXPECT_EQ(validate(p), kFine);
  p = good_scaled(DType::e5m2);
  p.has_zero = true;
  expect_refusal(p, {"has_zero (azp_adj) is set", "a is float8_e5m2"});
  p = good_blocks(DType::i8);
  p.has_zero = true;
  expect_refusal(p, {"has_zero (azp_adj) is set", "scale_a is of blocks"});
}

TEST(Validate, FastAccumulationIsForEightBitFloats) {
  GemmProblem p = good_scaled(DType::e4m3);
  p.fast_accumulation = true;
  EXPECT_EQ(validate(p), kFine);
  p = good_scaled(DType::i8);
  p.fast_accumulation = true;
  expect_refusal(p, {"fast_accumulation (use_fast_accum) is set", "a is int8"});
}

TEST(Validate, PrecisionIsForFloat32AndThePortableKernel) {
  GemmProblem p = good();
  p.precision = Precision::ieee;
  expect_refusal(p, {"precision is ieee", "a is bfloat16", "Leave precision out"});
  p.a.dtype = p.b.dtype = DType::f32;
  EXPECT_EQ(validate(p), kFine);
  p.kernel = KernelFamily::portable;
  EXPECT_EQ(validate(p), kFine);
  p.kernel = KernelFamily::sm90;
  expect_refusal(p, {"precision is ieee", "kernel is sm90", "precision=\"tf32\""});
}

TEST(Validate, Slices) {
  GemmProblem p = good();
  p.split_k_slices = -1;
  expect_refusal(p, {"split_k_slices is -1"});
  p.split_k_slices = 51;  // more than K: planners reduce them
  EXPECT_EQ(validate(p), kFine);
  p.split_k_slices = 2;
  p.split_k_mode = SplitKMode::none;
  expect_refusal(p, {"split_k_slices is 2", "split_k_mode is none"});
  p.split_k_slices = 1;
  EXPECT_EQ(validate(p), kFine);
  p.split_k_slices = 17;
  p.split_k_mode = SplitKMode::cluster;
  expect_refusal(p, {"split_k_slices is 17", "at most 16 CTAs"});
}

TEST(Validate, Device) {
  GemmProblem p = good();
  p.device = kPlanOnlyH100;
  EXPECT_EQ(validate(p), kFine);
  p.device = kPlanOnlyH200;
  EXPECT_EQ(validate(p), kFine);
  p.device = kPlanOnlyH200 - 1;
  expect_refusal(p, {"device is -4"});
  p.device = kCpu;
  p.kernel = KernelFamily::sm90;
  expect_refusal(p, {"kernel is sm90", "CPU"});
}

TEST(Validate, ReportsEveryBrokenRule) {
  GemmProblem p = good();
  p.a.stride_row = -1;
  p.b.dtype = DType::f32;
  p.d.stride_row = 3;
  p.split_k_slices = -9;
  p.device = -9;
  EXPECT_EQ(validate(p).size(), 5u);
}

}  // namespace
}  // namespace cleave
