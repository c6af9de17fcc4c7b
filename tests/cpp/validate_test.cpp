// Every rule of a problem and of a launch, and the facts derived from a problem.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cleave/device.h"
#include "problem/arguments.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kHuge = int64_t(1) << 31;

MatrixLayout row_major(int64_t columns, int64_t batch_stride = 0, DType type = DType::bf16) {
  return {.dtype = type, .stride_row = columns, .stride_col = 1, .stride_batch = batch_stride};
}

MatrixLayout column_major(int64_t rows, int64_t batch_stride = 0) {
  return {.stride_row = 1, .stride_col = rows, .stride_batch = batch_stride};
}

GemmProblem good() {
  return {.m = 30,
          .n = 20,
          .k = 50,
          .batch = 3,
          .a = row_major(50, 1500),
          .b = row_major(20, 1000),
          .c = row_major(20, 600),
          .d = row_major(20, 600)};
}

using Messages = std::vector<std::string>;
const Messages kFine;

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is missing in: " << message;
  }
}

/// Expects one message that contains all of `parts`.
void expect_refusal(const GemmProblem& problem, const std::vector<std::string>& parts) {
  const Messages messages = validate(problem);
  ASSERT_EQ(messages.size(), 1u) << testing::PrintToString(messages);
  expect_parts(messages[0], parts);
}

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

  for (const auto mode : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster,
                          SplitKMode::stream_k, SplitKMode::automatic}) {
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
  expect_refusal(p, {"b.stride_row is 0"});
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

TEST(Validate, Slices) {
  GemmProblem p = good();
  p.split_k_slices = -1;
  expect_refusal(p, {"split_k_slices is -1"});
  p.split_k_slices = 51;
  expect_refusal(p, {"split_k_slices is 51", "k is 50"});
  p.split_k_slices = 2;
  p.split_k_mode = SplitKMode::none;
  expect_refusal(p, {"split_k_slices is 2", "split_k_mode is none"});
  p.split_k_slices = 1;
  EXPECT_EQ(validate(p), kFine);
  p.split_k_slices = 17;
  p.split_k_mode = SplitKMode::cluster;
  expect_refusal(p, {"split_k_slices is 17", "at most 16 blocks"});
}

TEST(Validate, Device) {
  GemmProblem p = good();
  p.device = kPlanOnlyH100;
  EXPECT_EQ(validate(p), kFine);
  p.device = kPlanOnlyH100 - 1;
  expect_refusal(p, {"device is -3"});
  p.device = kCpu;
  p.kernel = KernelFamily::sm90;
  expect_refusal(p, {"kernel is sm90", "CPU"});
}

TEST(Validate, ReportsEveryBrokenRule) {
  GemmProblem p = good();
  p.a.stride_row = -1;
  p.b.dtype = DType::f32;
  p.d.stride_row = 3;
  p.split_k_slices = 99;
  p.device = -9;
  EXPECT_EQ(validate(p).size(), 5u);
}

TEST(Problem, TransposedExchangesTheRoles) {
  GemmProblem p = good();
  p.bias = Bias::row;
  p.c = row_major(25, 777);
  const GemmProblem t = transposed(p);
  EXPECT_EQ(t.m, p.n);
  EXPECT_EQ(t.n, p.m);
  EXPECT_EQ(t.a, (MatrixLayout{.stride_row = 1, .stride_col = 20, .stride_batch = 1000}));
  EXPECT_EQ(t.b, (MatrixLayout{.stride_row = 1, .stride_col = 50, .stride_batch = 1500}));
  EXPECT_EQ(t.c, (MatrixLayout{.stride_row = 1, .stride_col = 25, .stride_batch = 777}));
  EXPECT_EQ(t.bias, Bias::column);
  EXPECT_EQ(output_order(p), Order::row);
  EXPECT_EQ(output_order(t), Order::column);
  EXPECT_EQ(transposed(t), p);
}

TEST(Problem, BytesCountSharedOperandsOnce) {
  GemmProblem p = good();
  EXPECT_EQ(flops(p), 2.0 * 30 * 20 * 50 * 3);
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 + 1000 + 600) * 3);
  p.b.stride_batch = 0;
  p.has_c = true;
  p.bias = Bias::column;
  p.bias_dtype = DType::f32;
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 * 3 + 1000 + 600 * 3 + 600 * 3) + 4.0 * 30);
}

std::string refusal(const GemmProblem& problem, const GemmArguments& arguments) {
  try {
    check_arguments(problem, arguments);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
}

TEST(Arguments, PointersAndOverlaps) {
  alignas(16) static uint16_t a[4500], b[3000], c[1800], d[4500], bias[20];
  GemmProblem p = good();
  p.has_c = true;
  p.bias = Bias::row;
  const GemmArguments fine{.a = a, .b = b, .c = c, .d = d, .bias = bias, .beta = 1.0f};
  EXPECT_EQ(refusal(p, fine), "");

  GemmArguments bad = fine;
  bad.a = nullptr;
  expect_parts(refusal(p, bad), {"a is a null pointer"});
  bad = fine;
  bad.bias = nullptr;
  expect_parts(refusal(p, bad), {"bias is a null pointer"});
  bad = fine;
  bad.b = b + 1;
  expect_parts(refusal(p, bad), {"b is at", "16 bytes"});
  bad = fine;
  bad.d = a;
  expect_parts(refusal(p, bad), {"d overlaps a"});

  GemmArguments aliasing = fine;
  aliasing.c = d;
  EXPECT_EQ(refusal(p, aliasing), "") << "C is D exactly";
  aliasing.c = d + 8;
  expect_parts(refusal(p, aliasing), {"d overlaps c"});
  aliasing.beta = 0.0f;
  EXPECT_EQ(refusal(p, aliasing), "") << "C is not read";
  aliasing.c = nullptr;
  EXPECT_EQ(refusal(p, aliasing), "");

  p.k = 0;
  EXPECT_EQ(refusal(p, {.d = d, .bias = bias}), "") << "nothing of A and B is read";
  p.m = 0;
  EXPECT_EQ(refusal(p, {}), "");
}

TEST(Arguments, Workspace) {
  alignas(16) static char memory[64];
  EXPECT_NO_THROW(check_workspace(memory, 64, 64));
  EXPECT_NO_THROW(check_workspace(nullptr, 0, 0));
  EXPECT_THROW(check_workspace(memory, 63, 64), Error);
  EXPECT_THROW(check_workspace(memory + 4, 60, 32), Error);
}

}  // namespace
}  // namespace cleave
