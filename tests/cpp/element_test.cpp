// Conversions of element types against a slow, independent definition.

#include "cleave/core/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace cleave {
namespace {

struct Format {
  int exponent_bits, fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format kF16{5, 10}, kBf16{8, 7};

/// The definition of an IEEE interchange format.
double decode(const Format& format, uint16_t bits) {
  const int exponent = (bits >> format.fraction_bits) & ((1 << format.exponent_bits) - 1);
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  const int hidden = exponent == 0 ? 0 : 1 << format.fraction_bits;
  return sign * std::ldexp(hidden + fraction,
                           std::max(exponent, 1) - format.bias() - format.fraction_bits);
}

/// Rounds to nearest, ties to even, with the rounding of std::nearbyint.
double round_to(const Format& format, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent - 1), 2^exponent)
  const int quantum = std::max(exponent - 1, 1 - format.bias()) - format.fraction_bits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -quantum)), quantum);
  const double limit = std::ldexp(1.0, format.bias() + 1);
  return std::abs(rounded) >= limit ? std::copysign(std::numeric_limits<double>::infinity(), x)
                                    : rounded;
}

void expect_same(double actual, double expected, double input) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(actual)) << input;
  } else {
    ASSERT_EQ(actual, expected) << input;
    ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << input;
  }
}

TEST(Element, EveryF16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = decode(kF16, uint16_t(bits));
    const float actual = f16_to_float(uint16_t(bits));
    expect_same(actual, expected, bits);
    if (!std::isnan(expected)) {
      ASSERT_EQ(float_to_f16(actual), bits);
    }
  }
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(NAN))));
}

TEST(Element, EveryBf16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = decode(kBf16, uint16_t(bits));
    const float actual = bf16_to_float(uint16_t(bits));
    expect_same(actual, expected, bits);
    if (!std::isnan(expected)) {
      ASSERT_EQ(float_to_bf16(actual), bits);
    }
  }
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
  // A NaN whose payload lies in the bits that are cut off stays a NaN.
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bits_float(0x7f800001u)))));
}

void expect_rounded(float x) {
  expect_same(f16_to_float(float_to_f16(x)), round_to(kF16, x), x);
  expect_same(bf16_to_float(float_to_bf16(x)), round_to(kBf16, x), x);
}

TEST(Element, RandomFloatsRoundToNearestEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000000 && !HasFatalFailure(); ++i) expect_rounded(bits_float(random()));
  // Most of the above overflow or vanish as halfs; these do not.
  std::uniform_real_distribution<float> exponent(-27, 17), mantissa(-2, 2);
  for (int i = 0; i < 1000000 && !HasFatalFailure(); ++i) {
    expect_rounded(mantissa(random) * std::exp2(exponent(random)));
  }
}

TEST(Element, TiesAndTheirNeighbours) {
  for (uint32_t bits = 0; bits < 0x7bff && !HasFatalFailure(); ++bits) {
    const float tie = float((decode(kF16, uint16_t(bits)) + decode(kF16, uint16_t(bits + 1))) / 2);
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY)}) {
      expect_rounded(x);
      expect_rounded(-x);
    }
  }
  for (const float x : {65504.0f, 65519.99f, 65520.0f, 1e30f, INFINITY, 0.0f}) {
    expect_rounded(x);
    expect_rounded(-x);
  }
}

TEST(Element, LoadAndStoreByType) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    alignas(4) unsigned char memory[4 * 4] = {};
    store_element(type, memory, 2, 1.0f + 1.0f / 4096);
    EXPECT_EQ(load_element(type, memory, 2), type == DType::f32 ? 1.0f + 1.0f / 4096 : 1.0f);
    for (size_t i = 0; i < sizeof memory; ++i) {
      if (i / size_of(type) != 2) {
        EXPECT_EQ(memory[i], 0) << "only the element itself is written";
      }
    }
  }
}

}  // namespace
}  // namespace cleave
