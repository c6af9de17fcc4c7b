// Every rule of a launch.

#include "problem/arguments.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "gemm_problems.h"

namespace cleave {
namespace {

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

TEST(Arguments, ScalesAndZeroPoints) {
  alignas(16) static int8_t a[4500], b[3000], d[1800];
  static float scale_a[90], scale_b[60], scale_d[1], amax[1];
  static int32_t zero_a[30], zero_b[20];
  GemmProblem p = good_scaled();
  p.d.dtype = DType::i8;
  p.has_zero = p.has_scale_d = p.has_amax = true;
  const GemmArguments fine{.a = a,
                           .b = b,
                           .d = d,
                           .scale_a = scale_a,
                           .scale_b = scale_b,
                           .zero_a = zero_a,
                           .zero_b = zero_b,
                           .scale_d = scale_d,
                           .amax = amax};
  EXPECT_EQ(refusal(p, fine), "");

  // Each pointer in turn: missing, misaligned, where D is, where amax is.
  const auto expect_checked = [&](const char* name, auto GemmArguments::* pointer, bool may_be_missing) {
    using Pointer = std::decay_t<decltype(fine.*pointer)>;
    GemmArguments bad = fine;
    bad.*pointer = nullptr;
    if (may_be_missing) {
      EXPECT_EQ(refusal(p, bad), "");
    } else {
      expect_parts(refusal(p, bad), {std::string(name) + " is a null pointer"});
    }
    bad.*pointer = reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(fine.*pointer) + 2);
    expect_parts(refusal(p, bad), {std::string(name) + " is at", "4 bytes"});
    bad.*pointer = reinterpret_cast<Pointer>(d + 1796);
    expect_parts(refusal(p, bad), {"overlaps", name, "d"});
    if (name == std::string("amax")) return;
    bad.*pointer = reinterpret_cast<Pointer>(amax);
    expect_parts(refusal(p, bad), {"amax overlaps", name});
  };
  expect_checked("scale_a", &GemmArguments::scale_a, false);
  expect_checked("scale_b", &GemmArguments::scale_b, false);
  expect_checked("zero_a", &GemmArguments::zero_a, true);
  expect_checked("zero_b", &GemmArguments::zero_b, false);
  expect_checked("scale_d", &GemmArguments::scale_d, false);
  expect_checked("amax", &GemmArguments::amax, false);

  alignas(16) static uint16_t a16[4500], b16[3000], d16[1800];
  EXPECT_EQ(refusal(good(), {.a = a16, .b = b16, .d = d16}), "") << "nothing else takes part";
}

TEST(Arguments, StridedScalesMayLieAroundD) {
  // Rows of 20 floats of D, each followed by its scale.
  alignas(16) static float memory[30 * 21];
  alignas(16) static int8_t a[1500], b[1000];
  static float scale_b[1];
  GemmProblem p = good_scaled();
  p.batch = 1;
  p.d = row_major(21, 0, DType::f32);
  p.scale_a.stride_row = 21;
  p.scale_b.stride_row = 0;
  GemmArguments arguments{.a = a, .b = b, .d = memory, .scale_a = memory + 20, .scale_b = scale_b};
  EXPECT_EQ(refusal(p, arguments), "");
  arguments.scale_a = memory + 19;
  expect_parts(refusal(p, arguments), {"d overlaps scale_a"});
}

TEST(Arguments, BlockScalesOfEmptyKAreNotRead) {
  alignas(16) static uint16_t d[1800];
  GemmProblem p = good_blocks();
  p.k = 0;
  EXPECT_EQ(refusal(p, {.d = d}), "");
}

TEST(Arguments, Int32TakesWholeNumbersOfSumsAndC) {
  alignas(16) static int8_t a[4500], b[3000];
  alignas(16) static int32_t d[1800];
  GemmProblem p = good();
  p.a.dtype = p.b.dtype = DType::i8;
  p.d.dtype = DType::i32;
  EXPECT_EQ(refusal(p, {.a = a, .b = b, .d = d}), "");
  for (const float alpha : {0.5f, 2.0f})
    expect_parts(refusal(p, {.a = a, .b = b, .d = d, .alpha = alpha}),
                 {fmt::format("alpha is {}", alpha), "int32", "without a c"});
  alignas(16) static int32_t c[1800];
  p.c.dtype = DType::i32;
  p.has_c = true;
  const auto with = [&](float alpha, float beta) {
    return refusal(p, {.a = a, .b = b, .c = c, .d = d, .alpha = alpha, .beta = beta});
  };
  for (const float whole : {1.0f, 0.0f, -3.0f, -2147483520.0f, 2147483520.0f})
    EXPECT_EQ(with(whole, whole), "") << whole;
  const std::pair<float, std::string> others[] = {
      {0.5f, "0.5"}, {2147483648.0f, "2147483648"}, {INFINITY, "inf"}, {NAN, "nan"}};
  for (const auto& [other, text] : others) {
    expect_parts(with(other, 1), {"alpha is " + text, "int32", "whole number"});
    expect_parts(with(1, other), {"beta is " + text, "int32", "whole number"});
  }
}

TEST(Arguments, BoundsOfGroups) {
  alignas(16) static uint16_t a[1500], b[3000], d[600];
  alignas(8) static int32_t offsets[8], sizes[8];
  GemmProblem p = good_m_groups();
  GemmArguments fine{.a = a, .b = b, .d = d, .group_offsets = offsets};
  EXPECT_EQ(refusal(p, fine), "") << "ends have no sizes";

  p.groups.bounds = GroupBounds::starts;
  expect_parts(refusal(p, fine), {"group_sizes is a null pointer"});
  fine.group_sizes = sizes;
  EXPECT_EQ(refusal(p, fine), "");
  GemmArguments bad = fine;
  bad.group_offsets = nullptr;
  expect_parts(refusal(p, bad), {"group_offsets is a null pointer"});
  p.groups.bounds = GroupBounds::counts;
  EXPECT_EQ(refusal(p, bad), "") << "counts have no offsets";

  p.groups.bounds = GroupBounds::starts;
  p.groups.wide = true;
  EXPECT_EQ(refusal(p, fine), "");
  bad = fine;
  bad.group_sizes = sizes + 1;
  expect_parts(refusal(p, bad), {"group_sizes is at", "8 bytes of an int64"});
  p.groups.wide = false;
  EXPECT_EQ(refusal(p, bad), "");
  bad.group_sizes = reinterpret_cast<char*>(sizes) + 2;
  expect_parts(refusal(p, bad), {"group_sizes is at", "4 bytes of an int32"});
}

TEST(Arguments, BoundsMayNotLieInD) {
  alignas(16) static uint16_t a[1500], b[3000], d[600];
  const auto at = [](size_t byte) { return reinterpret_cast<char*>(d) + byte; };
  GemmProblem p = good_m_groups();
  // D ends after 1200 bytes; indptr has one value more than there are groups.
  p.groups.bounds = GroupBounds::indptr;
  p.d.stride_row = 19;
  p.n = 19;
  p.b.stride_row = 19;
  const size_t end = 2 * 30 * 19;
  EXPECT_EQ(refusal(p, {.a = a, .b = b, .d = d, .group_offsets = at(end)}), "");
  expect_parts(refusal(p, {.a = a, .b = b, .d = d, .group_offsets = at(end - 4)}), {"d overlaps group_offsets"});
  GemmArguments before{.a = a, .b = b, .d = at(32), .group_offsets = at(16)};
  EXPECT_EQ(refusal(p, before), "") << "four values of 4 bytes";
  before.group_offsets = at(20);
  expect_parts(refusal(p, before), {"d overlaps group_offsets"});
  p.groups.wide = true;
  before.group_offsets = at(8);
  expect_parts(refusal(p, before), {"d overlaps group_offsets"});
}

TEST(Arguments, GroupsOfMShareOneD) {
  alignas(16) static uint16_t a[1500], b[3000], d[600];
  static int32_t ends[3];
  GemmProblem p = good_m_groups();
  p.has_c = true;
  EXPECT_EQ(refusal(p, {.a = a, .b = b, .c = d, .d = d, .beta = 1, .group_offsets = ends}), "");
  p.c.stride_batch = 600;
  EXPECT_EQ(refusal(p, {.a = a, .b = b, .c = d, .d = d, .beta = 1, .group_offsets = ends}), "")
      << "there is no other entry";
}

TEST(Arguments, BiasOfGroups) {
  alignas(16) static uint16_t a[1500], b[3000], memory[640], bias[60];
  static int32_t ends[3];
  uint16_t* const d = memory + 40;
  GemmProblem p = good_m_groups();
  p.bias = Bias::row;
  p.bias_stride_batch = 20;
  GemmArguments arguments{.a = a, .b = b, .d = d, .bias = bias, .group_offsets = ends};
  EXPECT_EQ(refusal(p, arguments), "");
  arguments.bias = memory;  // the third group's is D's first row
  expect_parts(refusal(p, arguments), {"d overlaps bias"});
  p.bias_stride_batch = 0;
  EXPECT_EQ(refusal(p, arguments), "") << "all share the first";
}

TEST(Arguments, Workspace) {
  alignas(16) static char memory[64];
  EXPECT_NO_THROW(check_workspace(memory, 64, 64));
  EXPECT_NO_THROW(check_workspace(nullptr, 0, 0));
  EXPECT_THROW(check_workspace(memory, 63, 64), Error);
  EXPECT_THROW(check_workspace(memory + 4, 60, 32), Error);
}

TEST(Arguments, WorkspaceIsApart) {
  alignas(16) static uint16_t a[1500], b[3000], d[600], workspace[64];
  static int32_t ends[3];
  const GemmProblem p = good_m_groups();
  const GemmArguments arguments{.a = a, .b = b, .d = d, .group_offsets = ends};
  const auto refusal = [&](const void* data, size_t bytes) -> std::string {
    try {
      check_workspace_apart(p, arguments, data, bytes);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(workspace, sizeof workspace), "");
  EXPECT_EQ(refusal(a, 0), "") << "none is needed";
  expect_parts(refusal(a, 16), {"workspace overlaps a in memory"});
  expect_parts(refusal(b + 8, 16), {"workspace overlaps b in memory"});
  expect_parts(refusal(d + 8, 16), {"workspace overlaps d in memory"});
  expect_parts(refusal(ends, 4), {"workspace overlaps group_offsets in memory"});
}

}  // namespace
}  // namespace cleave
