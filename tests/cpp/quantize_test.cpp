// Quantisation on the CPU against its definition, in double.

#include "cleave/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cleave/core/math.h"
#include "cleave/core/quantizer.h"
#include "cleave/core/sigmoid.h"
#include "cleave/names.h"
#include "quantize/problem.h"

namespace cleave {
namespace {

constexpr DType kFloats[] = {DType::f16, DType::bf16, DType::f32};
constexpr DType kResults[] = {DType::i8, DType::e4m3, DType::e5m2};
constexpr Granularity kGranularities[] = {Granularity::tensor, Granularity::row, Granularity::block_1x128,
                                          Granularity::block_128x128};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A problem with its memory: padded rows, and canaries where nothing is to be written.
struct Case {
  static constexpr uint8_t kCanary = 0x55;

  QuantizeProblem problem;
  std::vector<float> x, smooth, scale, scale_t;  // x: what the stored elements stand for
  std::vector<uint8_t> stored, q, q_t;
  std::vector<int32_t> zero;

  Case(int64_t rows, int64_t cols, Granularity granularity, DType from, DType to, int padding = 0) {
    problem.rows = rows;
    problem.cols = cols;
    problem.granularity = granularity;
    problem.x = {.dtype = from, .stride_row = cols + padding, .alignment = size_of(from)};
    problem.q = {.dtype = to, .stride_row = cols + padding, .alignment = 1};
    problem.q_t = {.dtype = to, .stride_row = rows + padding, .alignment = 1};
    const MatrixShape shape = scale_shape(granularity, rows, cols);
    const MatrixShape shape_t = scale_shape(granularity, cols, rows);
    problem.scale = {.dtype = DType::f32, .stride_row = shape.cols, .alignment = 4};
    problem.scale_t = {.dtype = DType::f32, .stride_row = shape_t.cols, .alignment = 4};
    problem.smooth_alignment = 4;
    problem.device = kCpu;
    x.resize(size_t(rows * cols));
    stored.resize(size_t(rows * (cols + padding)) * size_of(from));
    q.assign(size_t(rows * (cols + padding)), kCanary);
    q_t.assign(size_t(cols * (rows + padding)), kCanary);
    scale.assign(size_t(shape.rows * shape.cols), -1.0f);
    scale_t.assign(size_t(shape_t.rows * shape_t.cols), -1.0f);
    zero.assign(size_t(granularity == Granularity::tensor ? 1 : rows), -1000);
    smooth.assign(size_t(cols), 1.0f);
  }

  template <class Value>
  void fill(const Value& value) {
    for (int64_t row = 0; row < problem.rows; ++row) {
      for (int64_t col = 0; col < problem.cols; ++col) {
        const int64_t at = row * problem.x.stride_row + col;
        store_element(problem.x.dtype, stored.data(), at, value(row, col));
        x[size_t(row * problem.cols + col)] = load_element(problem.x.dtype, stored.data(), at);
      }
    }
  }

  QuantizeArguments arguments() {
    return {.x = stored.data(),
            .q = q.data(),
            .scale = scale.data(),
            .zero = zero.data(),
            .smooth = smooth.data(),
            .q_t = q_t.data(),
            .scale_t = scale_t.data()};
  }

  void run(uint32_t threads = 2) {
    const auto broken = validate(problem);
    ASSERT_TRUE(broken.empty()) << broken.front();
    make_cpu_plan(problem, threads)->run(arguments(), nullptr);
  }

  double value(int64_t row, int64_t col) const {
    const double divisor = problem.has_smooth ? smooth[size_t(col)] : 1.0;
    return x[size_t(row * problem.cols + col)] / divisor;
  }
  float element(int64_t row, int64_t col) const {
    return load_element(problem.q.dtype, q.data(), row * problem.q.stride_row + col);
  }
  float element_t(int64_t row, int64_t col) const {
    return load_element(problem.q.dtype, q_t.data(), row * problem.q_t.stride_row + col);
  }
  float scale_at(int64_t row, int64_t col) const {
    const bool tensor = problem.granularity == Granularity::tensor;
    const bool square = problem.granularity == Granularity::block_128x128;
    const bool blocks = square || problem.granularity == Granularity::block_1x128;
    return scale[size_t((tensor ? 0 : square ? row / 128 : row) * problem.scale.stride_row + (blocks ? col / 128 : 0))];
  }
  int32_t zero_at(int64_t row) const {
    if (problem.symmetric) return 0;
    return zero[size_t(problem.granularity == Granularity::tensor ? 0 : row)];
  }

  void expect_untouched_padding() const {
    for (size_t i = 0; i < q.size(); ++i) {
      if (int64_t(i) % problem.q.stride_row < problem.cols) continue;
      ASSERT_EQ(q[i], kCanary);
    }
  }
};

/// How far rounding to a multiple of `step` 8-bit floats apart may lead, for a value of magnitude m
/// in units of the scale.
double half_step(DType type, double m) {
  switch (type) {
    case DType::e4m3:
      return std::max(m * 0x1p-4, 0x1p-10);
    case DType::e5m2:
      return std::max(m * 0x1p-3, 0x1p-17);
    default:
      return 0.5;
  }
}

/// Every element is its value divided by the scale, moved by the zero point, saturated and rounded.
void expect_rounded(const Case& c) {
  for (int64_t row = 0; row < c.problem.rows; ++row) {
    for (int64_t col = 0; col < c.problem.cols; ++col) {
      const DType type = c.problem.q.dtype;
      const double scale = c.scale_at(row, col), most = info_of(type).largest;
      const double exact = (scale == 0 ? 0 : c.value(row, col) / scale) + c.zero_at(row);
      const double expected = std::clamp(exact, type == DType::i8 ? -128 : -most, most);
      const double bound = half_step(type, std::abs(expected)) + 2e-6 * std::abs(expected);
      ASSERT_NEAR(c.element(row, col), expected, bound + 1e-4) << row << ", " << col;
    }
  }
}

/// The scales are those that fit, but for the roundings of float32.
void expect_fitting_scales(const Case& c) {
  const QuantizeProblem& p = c.problem;
  const MatrixShape shape = scale_shape(p.granularity, p.rows, p.cols);
  const int64_t height = p.granularity == Granularity::tensor          ? max_of<int64_t>(p.rows, 1)
                         : p.granularity == Granularity::block_128x128 ? 128
                                                                       : 1;
  const int64_t width = p.granularity <= Granularity::row ? max_of<int64_t>(p.cols, 1) : 128;
  for (int64_t i = 0; i < shape.rows; ++i) {
    for (int64_t j = 0; j < shape.cols; ++j) {
      double least = 0, most = 0;
      for (int64_t row = i * height; row < min_of((i + 1) * height, p.rows); ++row) {
        for (int64_t col = j * width; col < min_of((j + 1) * width, p.cols); ++col) {
          least = std::min(least, c.value(row, col));
          most = std::max(most, c.value(row, col));
        }
      }
      const double range = p.symmetric ? std::max(most, -least) : most - least;
      const double expected = range / (p.symmetric ? info_of(p.q.dtype).largest : 255.0);
      const double scale = c.scale[size_t(i * p.scale.stride_row + j)];
      ASSERT_NEAR(scale, expected, 4e-7 * expected) << i << ", " << j;
      if (!p.symmetric && scale != 0) {
        ASSERT_NEAR(c.zero_at(i), -128 - least / scale, 0.5001) << i;
      }
    }
  }
}

TEST(Quantize, RandomProblems) {
  std::mt19937 random(1);
  const auto pick = [&](auto& values) { return values[random() % std::size(values)]; };
  std::normal_distribution<float> normal(0.5f, 2.0f);
  for (int i = 0; i < 300; ++i) {
    const int64_t rows = random() % 3 == 0 ? random() % 300 : random() % 20;
    const int64_t cols = random() % 3 == 0 ? random() % 600 : random() % 140;
    Case c(rows, cols, pick(kGranularities), pick(kFloats), pick(kResults), int(random() % 3));
    const bool blocks = c.problem.granularity >= Granularity::block_1x128;
    c.problem.has_smooth = random() % 3 == 0;
    c.problem.symmetric = blocks || c.problem.q.dtype != DType::i8 || random() % 2 == 0;
    c.problem.given_scale = random() % 3 == 0;
    c.fill([&](int64_t, int64_t) { return normal(random) * std::exp2(float(random() % 8)); });
    for (float& s : c.smooth) s = std::exp2(normal(random));
    if (c.problem.given_scale) {
      for (float& s : c.scale) s = 0.25f * float(1 + random() % 80);  // some elements saturate
      for (int32_t& z : c.zero) z = int32_t(random() % 11) - 5;
    }
    SCOPED_TRACE(testing::Message() << i << ": " << rows << " x " << cols << " " << to_string(c.problem.granularity)
                                    << " " << to_string(c.problem.x.dtype) << " to " << to_string(c.problem.q.dtype));
    c.run(1 + random() % 3);
    if (c.problem.given_scale) {
      for (float& s : c.scale) ASSERT_EQ(std::fmod(s, 0.25f), 0.0f) << "given scales are read only";
    } else {
      expect_fitting_scales(c);
    }
    expect_rounded(c);
    c.expect_untouched_padding();
    if (HasFatalFailure()) return;
  }
}

TEST(Quantize, TheLargestValueBecomesTheLargestElement) {
  for (const DType to : kResults) {
    Case c(3, 40, Granularity::row, DType::f32, to);
    c.fill([](int64_t row, int64_t col) { return float(row + 1) * (col == 7 ? -3.0f : 0.1f); });
    c.run();
    for (int64_t row = 0; row < 3; ++row) EXPECT_EQ(c.element(row, 7), -info_of(to).largest);
  }
}

TEST(Quantize, GroupsOfZerosHaveScaleZero) {
  for (const Granularity granularity : kGranularities) {
    for (const bool symmetric : {true, false}) {
      if (!symmetric && granularity >= Granularity::block_1x128) continue;
      Case c(130, 130, granularity, DType::f16, DType::i8);
      c.problem.symmetric = symmetric;
      c.fill([](int64_t, int64_t) { return 0.0f; });
      c.run();
      for (const float scale : c.scale) EXPECT_EQ(scale, 0.0f);
      for (const uint8_t element : c.q) EXPECT_EQ(element, 0);
      EXPECT_EQ(c.zero[0], symmetric ? -1000 : 0);
    }
  }
}

TEST(Quantize, TinyGroupsCountAsZeros) {
  Case c(2, 4, Granularity::row, DType::f32, DType::i8);
  c.fill([](int64_t row, int64_t) { return row == 0 ? 1e-36f : 1e-35f; });
  c.run();
  EXPECT_EQ(c.scale[0], 0.0f);
  EXPECT_EQ(c.element(0, 0), 0.0f);
  EXPECT_GT(c.scale[1], 0.0f);
  EXPECT_EQ(c.element(1, 0), 127.0f);
}

TEST(Quantize, NansStayInTheirGroup) {
  for (const float bad : {kNan, -kNan}) {
    for (const DType to : kResults) {
      Case c(3, 200, Granularity::row, DType::bf16, to);
      c.fill([&](int64_t row, int64_t col) { return row == 1 && col == 150 ? bad : 1.0f; });
      c.run();
      EXPECT_TRUE(std::isnan(c.scale[1]));
      EXPECT_FALSE(std::isnan(c.scale[0]) || std::isnan(c.scale[2]));
      EXPECT_EQ(c.element(0, 0), info_of(to).largest);
      if (to == DType::i8) {
        EXPECT_EQ(c.element(1, 0), 0.0f);
      } else {
        EXPECT_TRUE(std::isnan(c.element(1, 0)));
      }
    }
  }
  for (const float bad : {kNan, -kNan}) {
    Case c(1, 9, Granularity::row, DType::f32, DType::i8);
    c.problem.symmetric = false;
    c.fill([&](int64_t, int64_t col) { return col == 3 ? bad : 1.0f; });
    c.run();
    EXPECT_TRUE(std::isnan(c.scale[0]));
  }
}

TEST(Quantize, InfinitiesGiveAnInfiniteScale) {
  Case c(1, 9, Granularity::tensor, DType::f16, DType::e4m3);
  c.fill([](int64_t, int64_t col) { return col == 3 ? -kInfinity : 1.0f; });
  c.run();
  EXPECT_EQ(c.scale[0], kInfinity);
  EXPECT_EQ(c.element(0, 0), 0.0f);
}

TEST(Quantize, GivenScalesSaturate) {
  for (const DType to : kResults) {
    Case c(1, 4, Granularity::tensor, DType::f32, to);
    c.problem.given_scale = true;
    c.scale = {0.5f};
    const float values[] = {1e9f, -1e9f, 1.0f, kNan};
    c.fill([&](int64_t, int64_t col) { return values[col]; });
    c.run();
    EXPECT_EQ(c.element(0, 0), info_of(to).largest);
    EXPECT_EQ(c.element(0, 1), to == DType::i8 ? -128.0f : -info_of(to).largest);
    EXPECT_EQ(c.element(0, 2), 2.0f);
    EXPECT_EQ(std::isnan(c.element(0, 3)), to != DType::i8);
  }
}

TEST(Quantize, AsymmetricRangesUseAllOfInt8) {
  Case c(3, 5, Granularity::row, DType::f32, DType::i8);
  c.problem.symmetric = false;
  const float values[3][5] = {{-1, 0, 1, 2, 3}, {5, 5, 5, 5, 5}, {-8, -2, -2, -2, -2}};  // across 0, above, below
  c.fill([&](int64_t row, int64_t col) { return values[row][col]; });
  c.run();
  EXPECT_EQ(c.element(0, 0), -128.0f);
  EXPECT_EQ(c.element(0, 4), 127.0f);
  EXPECT_EQ(c.zero[1], -128);
  EXPECT_EQ(c.element(1, 0), 127.0f);
  EXPECT_EQ(c.zero[2], 127);
  EXPECT_EQ(c.element(2, 0), -128.0f);
}

/// The transpose from the same read is the transpose quantised by itself.
TEST(Quantize, Transposes) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const Granularity granularity : {Granularity::block_1x128, Granularity::block_128x128}) {
    for (const auto& [rows, cols] : {std::pair{1, 1}, {130, 5}, {257, 200}, {128, 384}, {0, 7}}) {
      Case both(rows, cols, granularity, DType::f32, DType::e4m3, 3);
      both.problem.has_transpose = true;
      both.fill([&](int64_t, int64_t) { return normal(random); });
      both.run();
      Case turned(cols, rows, granularity, DType::f32, DType::e4m3, 3);
      turned.fill([&](int64_t row, int64_t col) { return both.x[size_t(col * cols + row)]; });
      turned.run();
      EXPECT_EQ(both.q_t, turned.q);
      EXPECT_EQ(both.scale_t, turned.scale);
      expect_rounded(both);
    }
  }
}

TEST(Quantize, ScalesMayHaveAnyStrides) {
  Case c(5, 300, Granularity::block_1x128, DType::f32, DType::i8);
  c.fill([](int64_t row, int64_t col) { return float(row + 1) * (col < 128 ? 1.0f : 2.0f); });
  c.problem.scale.stride_row = 1;  // outer dimension first, in a larger buffer
  c.problem.scale.stride_col = 8;
  c.scale.assign(24, -1.0f);
  c.run();
  for (int64_t row = 0; row < 5; ++row) {
    EXPECT_FLOAT_EQ(c.scale[size_t(row)], float(row + 1) / 127.0f);
    EXPECT_FLOAT_EQ(c.scale[size_t(8 + row)], float(row + 1) * 2.0f / 127.0f);
  }
  EXPECT_EQ(c.scale[5], -1.0f);
}

TEST(Quantize, ThreadsDoNotChangeResults) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Granularity granularity : kGranularities) {
    Case one(600, 400, granularity, DType::f32, DType::e5m2);
    one.fill([&](int64_t, int64_t) { return normal(random); });
    Case many = one;
    one.run(1);
    many.run(5);
    EXPECT_EQ(one.q, many.q);
    EXPECT_EQ(one.scale, many.scale);
  }
}

/// Both halves of rows: what is quantised is what swiglu makes of them, by scales that may be powers of two.
TEST(Quantize, JoinsGatesAndUps) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const bool ue8m0 : {false, true}) {
    const int64_t rows = 7, cols = 300;
    Case both(rows, 2 * cols, Granularity::block_1x128, DType::f32, DType::e4m3);
    both.fill([&](int64_t, int64_t) { return normal(random); });
    Case joined(rows, cols, Granularity::block_1x128, DType::f32, DType::e4m3);
    joined.fill([&](int64_t row, int64_t col) {
      const float* const x = both.x.data() + row * 2 * cols;
      return silu(x[col]) * x[cols + col];
    });
    Case gated = joined;
    gated.stored = both.stored;
    gated.problem.x = both.problem.x;
    gated.problem.gated = true;
    gated.problem.ue8m0_scale = joined.problem.ue8m0_scale = ue8m0;
    gated.run();
    joined.run();
    EXPECT_EQ(gated.q, joined.q);
    EXPECT_EQ(gated.scale, joined.scale);
    if (!ue8m0) expect_fitting_scales(joined);
    for (const float scale : gated.scale) EXPECT_EQ(std::exp2(std::round(std::log2(scale))) == scale, ue8m0) << scale;
    expect_rounded(joined);
  }
}

TEST(Quantize, PlansAreCached) {
  const Case c(5, 7, Granularity::row, DType::f32, DType::i8);
  EXPECT_EQ(plan(c.problem), plan(c.problem));
  const Case other(5, 8, Granularity::row, DType::f32, DType::i8);
  EXPECT_NE(plan(c.problem), plan(other.problem));
}

// --- bad input ---

/// All messages of the plan's error.
std::string refusal(const QuantizeProblem& problem, ErrorCode code = ErrorCode::invalid_argument) {
  try {
    plan(problem);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "served";
}

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Quantize, RefusesWhatNoKernelServes) {
  const QuantizeProblem good = Case(4, 256, Granularity::row, DType::f32, DType::i8).problem;
  ASSERT_TRUE(validate(good).empty());
  const auto changed = [&](auto change) {
    QuantizeProblem p = good;
    change(p);
    return p;
  };
  using P = QuantizeProblem;
  expect_says(refusal(changed([](P& p) { p.rows = -1; })), "rows is -1");
  expect_says(refusal(changed([](P& p) { p.gated = true, p.x.stride_row = 512; })), "gated is true, but granularity");
  expect_says(refusal(changed([](P& p) {
                p.ue8m0_scale = true;
                p.symmetric = false;
              })),
              "ue8m0_scale (use_ue8m0) is true, but symmetric is false");
  expect_says(refusal(changed([](P& p) { p.ue8m0_scale = p.given_scale = true; })),
              "scales that are found are rounded");
  expect_says(refusal(changed([](P& p) { p.cols = int64_t(1) << 31; })), "cols is 2147483648");
  expect_says(refusal(changed([](P& p) { p.x.dtype = DType::i8; }), ErrorCode::invalid_type), "x is int8");
  expect_says(refusal(changed([](P& p) {
                        p.q.dtype = DType::f16;
                        p.q.alignment = 2;
                      }),
                      ErrorCode::invalid_type),
              "q is float16");
  expect_says(refusal(changed([](P& p) { p.x.stride_col = 4, p.x.stride_row = 1; })), "x.stride_col is 4");
  expect_says(refusal(changed([](P& p) { p.q.stride_row = 255; })), "start 255 apart");
  expect_says(refusal(changed([](P& p) { p.x.stride_row = -256; })), "x.stride_row is -256");
  expect_says(refusal(changed([](P& p) { p.scale.stride_row = 0; })), "scale overlaps itself");
  expect_says(refusal(changed([](P& p) { p.scale.stride_row = -1; })), "scale.stride_row is -1");
  expect_says(refusal(changed([](P& p) { p.symmetric = false, p.q.dtype = DType::e4m3; })),
              "symmetric is false, but q is float8_e4m3fn");
  expect_says(refusal(changed([](P& p) {
                p.symmetric = false;
                p.granularity = Granularity::block_1x128;
                p.scale.stride_row = 2;
              })),
              "granularity is block_1x128");
  expect_says(refusal(changed([](P& p) { p.has_transpose = true; })), "has_transpose (transpose) is true");
  expect_says(refusal(changed([](P& p) { p.has_smooth = true, p.smooth_alignment = 2; })),
              "smooth.alignment is 2 bytes");
  expect_says(refusal(changed([](P& p) { p.scale.alignment = 0; })), "scale.alignment is 0 bytes");
  expect_says(refusal(changed([](P& p) {
                p.rows = p.cols = 2147483647;
                p.x.stride_row = p.q.stride_row = p.cols;
              })),
              "more than 2^31 groups");
  expect_says(refusal(changed([](P& p) { p.device = -7; })), "device is -7");
}

TEST(Quantize, RefusesBadPointers) {
  Case c(4, 8, Granularity::row, DType::f32, DType::i8);
  const auto plan = make_cpu_plan(c.problem);
  const auto refusal = [&](auto change) -> std::string {
    QuantizeArguments arguments = c.arguments();
    change(arguments);
    try {
      plan->run(arguments, nullptr);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "served";
  };
  using A = QuantizeArguments;
  expect_says(refusal([](A& a) { a.x = nullptr; }), "x is a null pointer");
  expect_says(refusal([](A& a) { a.q = nullptr; }), "q is a null pointer");
  expect_says(refusal([](A& a) { a.x = static_cast<const char*>(a.x) + 1; }), "4 bytes");
  expect_says(refusal([&](A& a) { a.q = c.stored.data() + 5; }), "q overlaps x");
  expect_says(refusal([](A& a) { a.scale = static_cast<float*>(const_cast<void*>(a.x)); }), "scale overlaps x");
  EXPECT_EQ(refusal([](A& a) { a.zero = nullptr, a.smooth = nullptr, a.q_t = nullptr; }), "served");
}

}  // namespace
}  // namespace cleave
