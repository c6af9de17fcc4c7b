// Problems that break no rule, for tests to change.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cleave/epilogue.h"
#include "cleave/gemm.h"

namespace cleave {

inline MatrixLayout row_major(int64_t columns, int64_t batch_stride = 0, DType type = DType::bf16) {
  return {.dtype = type, .stride_row = columns, .stride_col = 1, .stride_batch = batch_stride};
}

inline MatrixLayout column_major(int64_t rows, int64_t batch_stride = 0) {
  return {.stride_row = 1, .stride_col = rows, .stride_batch = batch_stride};
}

inline GemmProblem good() {
  return {.m = 30,
          .n = 20,
          .k = 50,
          .batch = 3,
          .a = row_major(50, 1500),
          .b = row_major(20, 1000),
          .c = row_major(20, 600),
          .d = row_major(20, 600)};
}

/// An 8-bit product with scales of rows and columns.
inline GemmProblem good_scaled(DType type = DType::i8) {
  GemmProblem p = good();
  p.a.dtype = p.b.dtype = type;
  p.scale_a = {.kind = Scaling::vector, .stride_row = 1, .stride_batch = 30};
  p.scale_b = {.kind = Scaling::vector, .stride_row = 1, .stride_batch = 20};
  return p;
}

/// K of two blocks and a bit; scales of 1 x 128 of A, of 128 x 128 of B.
inline GemmProblem good_blocks(DType type = DType::e4m3) {
  GemmProblem p = good();
  p.k = 300;
  p.a = row_major(300, 9000, type);
  p.b = row_major(20, 6000, type);
  p.scale_a = {.kind = Scaling::block, .stride_row = 1, .stride_k = 30, .stride_batch = 90};
  p.scale_b = {.kind = Scaling::block, .rows = 128, .stride_row = 3, .stride_k = 1};
  return p;
}

/// Three groups of 30 rows, and a B for each.
inline GemmProblem good_m_groups() {
  GemmProblem p = good();
  p.groups = {.dimension = Grouping::m, .zero_rest = true};
  p.a.stride_batch = p.c.stride_batch = p.d.stride_batch = 0;
  return p;
}

/// Three groups of K = 50, and a D for each.
inline GemmProblem good_k_groups() {
  GemmProblem p = good();
  p.groups.dimension = Grouping::k;
  p.a.stride_batch = p.b.stride_batch = 0;
  return p;
}

/// B has 40 columns, in one batch entry.
inline GemmProblem good_swiglu() {
  GemmProblem p = good();
  p.epilogue = epilogue_of(Activation::swiglu);
  p.b = row_major(40, 2000);
  return p;
}

inline void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is missing in: " << message;
  }
}

using Refusals = std::vector<std::string>;
inline const Refusals kFine;

/// Expects that `problem` breaks one rule, and that its message contains all of `parts`.
inline void expect_refusal(const GemmProblem& problem, const std::vector<std::string>& parts) {
  const Refusals messages = validate(problem);
  ASSERT_EQ(messages.size(), 1u) << testing::PrintToString(messages);
  expect_parts(messages[0], parts);
}

}  // namespace cleave
