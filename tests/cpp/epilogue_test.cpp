// The epilogue against double: alpha * scales * (sum - zeros) + beta * C + bias.

#include "cleave/epilogue/epilogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace cleave {
namespace {

struct Given : EpilogueParams {
  ScaleParams scales_a, scales_b;
};

/// One element on its own; kernels keep the lines of a row and a column for many.
template <class Sum>
float value_at(const EpilogueConfig& config, const Given& p, Sum sum, uint32_t row, uint32_t col, uint32_t batch,
               bool empty = false) {
  return epilogue_value(config, p, sum, row_broadcast(config, p, p.scales_a, row, batch, row),
                        column_broadcast(config, p, p.scales_b, col, batch, col), empty,
                        c_element(config, p, {row, col, batch}));
}

/// The same of an int32 D.
int32_t integer_at(const EpilogueConfig& config, const Given& p, int32_t sum, uint32_t row, uint32_t col,
                   uint32_t batch, bool empty = false) {
  return epilogue_integer(config, p, sum, row_broadcast(config, p, p.scales_a, row, batch, row),
                          column_broadcast(config, p, p.scales_b, col, batch, col), empty,
                          c_integer(config, p, {row, col, batch}));
}

constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};

TEST(Epilogue, EveryCombination) {
  constexpr uint32_t m = 5, n = 7, batches = 2;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-2, 2);
  for (const DType c_type : kTypes) {
    for (const Order order : {Order::row, Order::column}) {
      Given p;
      p.c_stride = (order == Order::row ? n : m) + 3;
      p.c_batch_stride = p.c_stride * 8;
      p.bias_batch_stride = m + n;
      std::vector<float> c(batches * p.c_batch_stride), bias(batches * p.bias_batch_stride);
      for (int64_t i = 0; i < int64_t(c.size()); ++i) store_element(c_type, c.data(), i, value(random));
      for (int64_t i = 0; i < int64_t(bias.size()); ++i) store_element(c_type, bias.data(), i, value(random));
      p.c = c.data();
      p.bias = bias.data();
      for (const Bias bias_kind : {Bias::none, Bias::row, Bias::column}) {
        for (const bool has_c : {false, true}) {
          const EpilogueConfig config{c_type, DType::f32, c_type, order, bias_kind, has_c};
          p.alpha = value(random);
          p.beta = value(random);
          for (uint32_t batch = 0; batch < batches; ++batch) {
            for (uint32_t i = 0; i < m; ++i) {
              for (uint32_t j = 0; j < n; ++j) {
                const float sum = value(random);
                const int64_t at =
                    batch * p.c_batch_stride + (order == Order::row ? i * p.c_stride + j : j * p.c_stride + i);
                double expected = double(p.alpha) * sum;
                if (has_c) expected += double(p.beta) * load_element(c_type, c.data(), at);
                if (bias_kind != Bias::none)
                  expected +=
                      load_element(c_type, bias.data(), batch * p.bias_batch_stride + (bias_kind == Bias::row ? j : i));
                ASSERT_NEAR(value_at(config, p, sum, i, j, batch), expected, 1e-5);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Epilogue, BetaZeroNeverReadsC) {
  const EpilogueConfig config{DType::f32, DType::f32, DType::f32, Order::row, Bias::none, true};
  Given p;
  p.alpha = 3.0f;
  p.c = nullptr;  // a read would crash
  EXPECT_EQ(value_at(config, p, 2.0f, 0, 0, 0), 6.0f);
  const float nan = NAN;
  p.c = &nan;
  EXPECT_EQ(value_at(config, p, 2.0f, 0, 0, 0), 6.0f);
  p.beta = 1.0f;
  EXPECT_TRUE(std::isnan(value_at(config, p, 2.0f, 0, 0, 0)));
}

/// Scales and zero points of a small batch, and what they make of a sum.
struct Scales {
  static constexpr uint32_t m = 4, n = 6, batches = 2;

  Scales() {
    for (size_t i = 0; i < a.size(); ++i) a[i] = 0.5f + 0.25f * i;
    for (size_t i = 0; i < b.size(); ++i) b[i] = 3.0f - 0.125f * i;
    for (size_t i = 0; i < zero_a.size(); ++i) zero_a[i] = 7 - 5 * int32_t(i);
    for (size_t i = 0; i < zero_b.size(); ++i) zero_b[i] = 100'003 * int32_t(i) - 200'000;
    params.scales_a.data = a.data();
    params.scales_b.data = b.data();
    params.scales_a.stride_row = 2;
    params.scales_a.stride_batch = 9;
    params.scales_b.stride_row = 1;
    params.scales_b.stride_batch = 7;
    params.zero_a = zero_a.data();
    params.zero_b = zero_b.data();
  }

  double expected(int64_t sum, uint32_t i, uint32_t j, uint32_t batch) const {
    const double scale = double(a[batch * params.scales_a.stride_batch + i * params.scales_a.stride_row]) *
                         b[batch * params.scales_b.stride_batch + j * params.scales_b.stride_row];
    const int64_t zero = int64_t(params.zero_a == nullptr ? 1 : zero_a[i]) * zero_b[j];
    return scale * double(sum - zero);
  }

  template <class Check>
  void at_each(const Check& check) const {
    for (uint32_t batch = 0; batch < batches; ++batch) {
      for (uint32_t i = 0; i < m; ++i) {
        for (uint32_t j = 0; j < n; ++j) check(i, j, batch);
      }
    }
  }

  std::array<float, 9 + 2 * m> a;
  std::array<float, 7 + n> b;
  std::array<int32_t, m> zero_a;
  std::array<int32_t, n> zero_b;
  Given params;
};

constexpr EpilogueConfig kInteger{.c = DType::f32,
                                  .d = DType::f32,
                                  .bias_dtype = DType::f32,
                                  .order = Order::row,
                                  .bias = Bias::none,
                                  .scaling = Scaling::vector,
                                  .has_zero = true};

TEST(Epilogue, ScalesOfRowsAndColumns) {
  Scales scales;
  EpilogueConfig config = kInteger;
  config.has_zero = false;
  std::fill(scales.zero_b.begin(), scales.zero_b.end(), 0);  // for `expected`
  for (const bool one_of_a : {false, true}) {
    for (const bool one_of_b : {false, true}) {
      scales.params.scales_a.stride_row = one_of_a ? 0 : 2;
      scales.params.scales_b.stride_row = one_of_b ? 0 : 1;
      scales.at_each([&](uint32_t i, uint32_t j, uint32_t batch) {
        EXPECT_EQ(value_at(config, scales.params, 40.0f, i, j, batch), scales.expected(40, i, j, batch));
        EXPECT_EQ(value_at(config, scales.params, int32_t(40), i, j, batch), scales.expected(40, i, j, batch));
      });
    }
  }
}

TEST(Epilogue, ScalesMayBeZeroOrNaN) {
  Scales scales;
  EpilogueConfig config = kInteger;
  config.has_zero = false;
  scales.a[2] = 0.0f;
  scales.b[1] = NAN;
  EXPECT_EQ(value_at(config, scales.params, 40.0f, 1, 0, 0), 0.0f);
  EXPECT_TRUE(std::isnan(value_at(config, scales.params, 40.0f, 0, 1, 0)));
  EXPECT_TRUE(std::isnan(value_at(config, scales.params, 0.0f, 1, 1, 0)));
}

TEST(Epilogue, ZeroPointsAreTakenOffTheExactSum) {
  Scales scales;
  constexpr int32_t kSum = 2'000'000'011;  // no float, nor is what is left of it
  for (const bool has_zero_a : {true, false}) {
    if (!has_zero_a) scales.params.zero_a = nullptr;
    scales.at_each([&](uint32_t i, uint32_t j, uint32_t batch) {
      const double expected = scales.expected(kSum, i, j, batch);
      EXPECT_NEAR(value_at(kInteger, scales.params, kSum, i, j, batch), expected, 2e-7 * std::abs(expected));
      const int64_t left = kSum - int64_t(has_zero_a ? scales.zero_a[i] : 1) * int64_t(scales.zero_b[j]);
      EXPECT_EQ(integer_at(kInteger, scales.params, kSum, i, j, batch), left);
    });
  }
}

TEST(Epilogue, ScaledSumsMeetTheRest) {
  Scales scales;
  EpilogueConfig config = kInteger;
  config.bias = Bias::row;
  config.has_c = true;
  const std::vector<float> c(64, 3.0f), bias = {1, -2, 3, -4, 5, -6};
  scales.params.alpha = 2.0f;
  scales.params.beta = -0.5f;
  scales.params.c = c.data();
  scales.params.c_stride = Scales::n;
  scales.params.bias = bias.data();
  scales.at_each([&](uint32_t i, uint32_t j, uint32_t batch) {
    const double expected = 2 * scales.expected(1000, i, j, batch) - 0.5 * 3 + bias[j];
    EXPECT_NEAR(value_at(config, scales.params, int32_t(1000), i, j, batch), expected,
                3e-7 * (std::abs(expected) + 10));
  });
}

TEST(Epilogue, TheSumOfNothingIsZeroWhateverItIsMultipliedBy) {
  Scales scales;
  scales.a[0] = INFINITY;
  scales.b[1] = NAN;
  scales.params.alpha = INFINITY;
  const float c[] = {5, 6};
  scales.params.c = c;
  scales.params.beta = 2.0f;
  EpilogueConfig config = kInteger;
  EXPECT_EQ(value_at(config, scales.params, 0, 0, 0, 0, true), 0.0f);
  EXPECT_EQ(value_at(config, scales.params, NAN, 0, 1, 0, true), 0.0f);
  EXPECT_TRUE(std::isnan(value_at(config, scales.params, 0, 0, 1, 0)));
  config.has_c = true;
  EXPECT_EQ(value_at(config, scales.params, 0, 0, 1, 0, true), 12.0f);
  config.has_c = false;
  EXPECT_EQ(integer_at(config, scales.params, 0, 1, 1, 0, true), 0);
}

TEST(Epilogue, IntegersAreAddedAsSuch) {
  const int32_t c[] = {2'000'000'011, -2'000'000'011, 3, std::numeric_limits<int32_t>::max()};
  EpilogueConfig config = kInteger;
  config.has_zero = false;
  config.has_c = true;
  config.c = config.d = DType::i32;
  Given p;
  p.c = c;
  p.c_stride = 2;
  p.beta = 1.0f;
  EXPECT_EQ(integer_at(config, p, 100'000'007, 0, 0, 0), 2'100'000'018);  // neither is a float
  EXPECT_EQ(integer_at(config, p, -100'000'007, 0, 1, 0), -2'100'000'018);
  EXPECT_EQ(integer_at(config, p, 1, 1, 1, 0), std::numeric_limits<int32_t>::min());  // it wraps
  p.alpha = -3.0f;
  p.beta = 7.0f;
  EXPECT_EQ(integer_at(config, p, 100'000'007, 1, 0, 0), -300'000'000);
  EXPECT_EQ(integer_at(config, p, 100'000'007, 1, 0, 0, true), 21);
  p.beta = 0.0f;
  p.c = nullptr;  // a read would crash
  EXPECT_EQ(integer_at(config, p, 100'000'007, 0, 0, 0), -300'000'021);
}

TEST(Epilogue, StoredValueIsDividedByScaleD) {
  const float scale_d = 0.25f;
  Given p;
  p.scale_d = nullptr;  // a read would crash
  EpilogueConfig config = kInteger;
  EXPECT_EQ(stored_factor(config, p), 1.0f);
  p.scale_d = &scale_d;
  config.has_scale_d = true;
  EXPECT_EQ(stored_factor(config, p), 4.0f);
}

TEST(Epilogue, OffsetsPass32Bits) {
  EXPECT_EQ(epilogue_offset(Order::row, 1'000'000, 2'000'000, 5), 2'000'000'000'005);
  EXPECT_EQ(epilogue_offset(Order::column, 1'000'000, 5, 2'000'000), 2'000'000'000'005);
}

}  // namespace
}  // namespace cleave
