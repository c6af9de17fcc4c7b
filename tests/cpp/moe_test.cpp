// The rules of a MoeProblem and of a launch's arguments, and the CPU backend's threads.

#include "cleave/moe.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "moe/problem.h"

namespace cleave {
namespace {

MoeProblem problem_of(MoeOperation operation) {
  const MatrixLayout layout{.dtype = DType::f32, .stride_row = 8, .alignment = 4};
  return {.operation = operation,
          .tokens = 6,
          .top_k = 2,
          .experts = 4,
          .columns = 8,
          .token = layout,
          .row = layout,
          .row_grad = layout,
          .has_weights = operation == MoeOperation::combine_backward,
          .device = kCpu};
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Moe, RulesNameWhatIsWrong) {
  const auto expect = [](MoeOperation operation, const char* words, auto change) {
    MoeProblem p = problem_of(operation);
    ASSERT_TRUE(validate(p).empty());
    change(p);
    const auto broken = validate(p);
    ASSERT_EQ(broken.size(), 1u) << words;
    EXPECT_NE(broken.front().find(words), std::string::npos) << broken.front();
  };
  using Operation = MoeOperation;
  expect(Operation::offsets, "experts is 0", [](auto& p) { p.experts = 0; });
  expect(Operation::sort, "experts is 1025", [](auto& p) { p.experts = 1025; });
  expect(Operation::sort, "top_k is 0", [](auto& p) { p.top_k = 0; });
  expect(Operation::sort, "2^31 slots", [](auto& p) { p.tokens = p.top_k = 1 << 16; });
  expect(Operation::permute, "token is float16 and row is float32", [](auto& p) { p.token.dtype = DType::f16; });
  expect(Operation::permute, "row overlaps itself", [](auto& p) { p.row.stride_row = 7; });
  expect(Operation::permute, "token.stride_col is 2", [](auto& p) { p.token.stride_col = 2; });
  expect(Operation::permute, "16776960 bytes",
         [](auto& p) { p.columns = p.token.stride_row = p.row.stride_row = 1 << 22; });
  expect(Operation::permute, "has_weights is true", [](auto& p) { p.has_weights = true; });
  expect(Operation::combine, "row is int8", [](auto& p) { p.row.dtype = p.token.dtype = DType::i8; });
  expect(Operation::combine, "weights_dtype is int32", [](auto& p) {
    p.has_weights = true;
    p.weights_dtype = DType::i32;
  });
  expect(Operation::combine_backward, "has_weights is false", [](auto& p) { p.has_weights = false; });
  expect(Operation::combine_backward, "row_grad is bfloat16", [](auto& p) { p.row_grad.dtype = DType::bf16; });
  expect(Operation::gather, "device is -7", [](auto& p) { p.device = -7; });
}

/// Arrays for every argument of problem_of.
struct Arrays {
  std::vector<int32_t> ids = {3, 1, 0, -1, 2, 2, 3, 0, 9, 1, 1, 0};
  std::vector<int32_t> offsets = std::vector<int32_t>(4), indices = std::vector<int32_t>(12);
  std::vector<float> tokens = std::vector<float>(6 * 8), rows = std::vector<float>(12 * 8);
  std::vector<float> weights = std::vector<float>(12), weights_grad = weights, rows_grad = rows;

  MoeArguments arguments() {
    return {.ids = ids.data(),
            .offsets = offsets.data(),
            .indices = indices.data(),
            .tokens = tokens.data(),
            .rows = rows.data(),
            .weights = weights.data(),
            .rows_grad = rows_grad.data(),
            .weights_grad = weights_grad.data()};
  }
};

TEST(Moe, ArgumentsMustBeThereAndApart) {
  Arrays arrays;
  const auto message = [&](MoeOperation operation, auto change) {
    MoeArguments arguments = arrays.arguments();
    change(arguments);
    return message_of([&] { plan(problem_of(operation))->run(arguments, nullptr); });
  };
  const auto nothing = [](MoeArguments&) {};
  for (const auto operation : {MoeOperation::offsets, MoeOperation::sort, MoeOperation::permute, MoeOperation::gather,
                               MoeOperation::combine, MoeOperation::combine_backward}) {
    EXPECT_EQ(message(operation, nothing), "no error");
  }
  EXPECT_TRUE(
      message(MoeOperation::sort, [](auto& a) { a.indices = nullptr; }).starts_with("indices is a null pointer"));
  EXPECT_TRUE(
      message(MoeOperation::permute, [](auto& a) { a.rows = a.tokens; }).starts_with("rows overlaps tokens in memory"));
  EXPECT_TRUE(
      message(MoeOperation::combine, [](auto& a) { a.tokens = a.rows; }).starts_with("tokens overlaps rows in memory"));
  EXPECT_TRUE(message(MoeOperation::sort, [](auto& a) {
                a.indices = static_cast<int32_t*>(const_cast<void*>(a.ids));
              }).starts_with("indices overlaps ids in memory"));
  EXPECT_EQ(message(MoeOperation::offsets, [](auto& a) { a.indices = nullptr; }), "no error");
}

TEST(Moe, DroppedSlotsComeLast) {
  Arrays arrays;
  for (size_t i = 0; i < arrays.tokens.size(); ++i) arrays.tokens[i] = float(i / 8 + 1);
  plan(problem_of(MoeOperation::permute))->run(arrays.arguments(), nullptr);
  EXPECT_EQ(arrays.offsets, (std::vector<int32_t>{3, 6, 8, 10}));
  EXPECT_EQ(arrays.indices, (std::vector<int32_t>{2, 7, 11, 1, 9, 10, 4, 5, 0, 6, ~3, ~8}));
  for (size_t row = 0; row < 12; ++row) {
    const int32_t slot = arrays.indices[row];
    EXPECT_EQ(arrays.rows[row * 8 + 7], slot < 0 ? 0.0f : float(slot / 2 + 1));
  }
}

TEST(Moe, ThreadsDoNotChangeResults) {
  std::mt19937 random(1);
  MoeProblem p = problem_of(MoeOperation::combine);
  p.tokens = 500;
  p.columns = 300;
  p.token.stride_row = p.row.stride_row = 300;
  std::vector<int32_t> indices(1000);
  for (int i = 0; i < 1000; ++i) indices[size_t(i)] = i % 7 == 0 ? ~(999 - i) : 999 - i;
  std::vector<float> rows(1000 * 300);
  for (float& x : rows) x = float(random()) * 1e-9f;
  std::vector<float> sums[2];
  for (const uint32_t threads : {1, 5}) {
    std::vector<float>& tokens = sums[threads / 5];
    tokens.resize(500 * 300);
    make_cpu_plan(p, threads)->run({.indices = indices.data(), .tokens = tokens.data(), .rows = rows.data()}, nullptr);
  }
  EXPECT_EQ(sums[0], sums[1]);
}

}  // namespace
}  // namespace cleave
