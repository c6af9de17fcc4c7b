// Conversions of element types against a slow, independent definition.

#include "cleave/core/element.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/enumerators.h"

namespace cleave {
namespace {

/// A binary floating-point format. `ieee`: its largest exponent is kept for infinities and NaNs;
/// else only the code of all ones is a NaN.
struct Format {
  int exponent_bits, fraction_bits;
  bool ieee = true;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign_bit() const { return 1u << (exponent_bits + fraction_bits); }
  double largest() const {
    return ieee ? std::ldexp(2 - std::ldexp(1.0, -fraction_bits), bias())
                : std::ldexp(2 - std::ldexp(2.0, -fraction_bits), bias() + 1);
  }
};
constexpr Format kF16{5, 10}, kBf16{8, 7}, kE4m3{4, 3, false}, kE5m2{5, 2};

/// The definition of such a format.
double decode(const Format& format, uint32_t bits) {
  const int exponents = 1 << format.exponent_bits;
  const int exponent = (bits >> format.fraction_bits) & (exponents - 1);
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const double sign = bits & format.sign_bit() ? -1.0 : 1.0;
  const bool ones = fraction == (1 << format.fraction_bits) - 1;
  if (exponent == exponents - 1 && (format.ieee || ones)) {
    return format.ieee && fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                                        : std::numeric_limits<double>::quiet_NaN();
  }
  const int hidden = exponent == 0 ? 0 : 1 << format.fraction_bits;
  return sign * std::ldexp(hidden + fraction, std::max(exponent, 1) - format.bias() - format.fraction_bits);
}

/// Rounds to nearest, ties to even, with the rounding of std::nearbyint, as if the exponent had no
/// upper limit.
double round_to(const Format& format, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent - 1), 2^exponent)
  const int quantum = std::max(exponent - 1, 1 - format.bias()) - format.fraction_bits;
  return std::ldexp(std::nearbyint(std::ldexp(x, -quantum)), quantum);
}

double round_to_infinity(const Format& format, double x) {
  const double rounded = round_to(format, x);
  return std::abs(rounded) > format.largest() ? std::copysign(std::numeric_limits<double>::infinity(), x) : rounded;
}

double round_saturated(const Format& format, double x) {
  const double rounded = round_to(format, x);
  return std::abs(rounded) > format.largest() ? std::copysign(format.largest(), x) : rounded;
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

template <int mantissa>
void expect_every_fp8(const Format& format) {
  for (uint32_t code = 0; code < 0x100; ++code) {
    const double expected = decode(format, code);
    const float actual = fp8_to_float<mantissa>(uint8_t(code));
    expect_same(actual, expected, code);
    if (std::isfinite(expected)) {
      ASSERT_EQ(float_to_fp8<mantissa>(actual), code);
    }
  }
  EXPECT_TRUE(std::isnan(fp8_to_float<mantissa>(float_to_fp8<mantissa>(NAN))));
  EXPECT_TRUE(std::isnan(fp8_to_float<mantissa>(float_to_fp8<mantissa>(bits_float(0x7f800001u)))));
  EXPECT_EQ(fp8_to_float<mantissa>(float_to_fp8<mantissa>(INFINITY)), format.largest());
  EXPECT_EQ(fp8_to_float<mantissa>(float_to_fp8<mantissa>(-INFINITY)), -format.largest());
}

TEST(Element, EveryE4m3) {
  EXPECT_EQ(kE4m3.largest(), 448);
  expect_every_fp8<3>(kE4m3);
}

TEST(Element, EveryE5m2) {
  EXPECT_EQ(kE5m2.largest(), 57344);
  expect_every_fp8<2>(kE5m2);
}

void expect_rounded(float x) {
  expect_same(f16_to_float(float_to_f16(x)), round_to_infinity(kF16, x), x);
  expect_same(bf16_to_float(float_to_bf16(x)), round_to_infinity(kBf16, x), x);
  if (std::isinf(x)) return;
  expect_same(fp8_to_float<3>(float_to_fp8<3>(x)), round_saturated(kE4m3, x), x);
  expect_same(fp8_to_float<2>(float_to_fp8<2>(x)), round_saturated(kE5m2, x), x);
}

TEST(Element, RandomFloatsRoundToNearestEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000000 && !HasFatalFailure(); ++i) expect_rounded(bits_float(random()));
  // Most of the above overflow or vanish as halfs and 8-bit floats; these do not.
  std::uniform_real_distribution<float> exponent(-27, 17), mantissa(-2, 2);
  for (int i = 0; i < 1000000 && !HasFatalFailure(); ++i) {
    expect_rounded(mantissa(random) * std::exp2(exponent(random)));
  }
}

void expect_ties_rounded(const Format& format, uint32_t codes) {
  for (uint32_t bits = 0; bits < codes; ++bits) {
    const float tie = float((decode(format, bits) + decode(format, bits + 1)) / 2);
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY)}) {
      expect_rounded(x);
      expect_rounded(-x);
    }
  }
}

TEST(Element, TiesAndTheirNeighbours) {
  expect_ties_rounded(kF16, 0x7bff);
  expect_ties_rounded(kE4m3, 0x7e);
  expect_ties_rounded(kE5m2, 0x7b);
  for (const float x : {448.0f, 463.99f, 464.0f, 464.01f, 479.0f, 480.0f, 57344.0f, 61439.0f, 61440.0f}) {
    expect_rounded(x);
    expect_rounded(-x);
  }
  for (const float x : {65504.0f, 65519.99f, 65520.0f, 1e30f, INFINITY, 0.0f}) {
    expect_rounded(x);
    expect_rounded(-x);
  }
}

TEST(Element, IntegersRoundToNearestEvenAndSaturate) {
  const auto expected = [](double x) { return std::clamp(std::nearbyint(x), -128.0, 127.0); };
  for (int quarter = -600; quarter <= 600; ++quarter) {
    const float tie = float(quarter) / 4;
    for (const float x : {tie, std::nextafter(tie, -INFINITY), std::nextafter(tie, INFINITY)}) {
      ASSERT_EQ(float_to_i8(x), expected(x)) << x;
    }
  }
  std::mt19937 random(2);
  for (int i = 0; i < 1000000 && !HasFatalFailure(); ++i) {
    const float x = bits_float(random());
    ASSERT_EQ(float_to_i8(x), std::isnan(x) ? 0 : expected(x)) << x;
  }
  EXPECT_EQ(float_to_i8(INFINITY), 127);
  EXPECT_EQ(float_to_i8(-INFINITY), -128);
  EXPECT_EQ(float_to_i8(NAN), 0);
}

TEST(Element, LoadAndStoreByType) {
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::i8, DType::e4m3, DType::e5m2, DType::i32};
  for (const DType type : kTypes) {
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

TEST(Element, IntegerSumsAreStoredWhole) {
  constexpr int32_t kSum = (1 << 30) + 1;  // no float
  int32_t stored = 0;
  store_element(DType::i32, &stored, 0, kSum);
  EXPECT_EQ(stored, kSum);
  float rounded = 0;
  store_element(DType::f32, &rounded, 0, kSum);
  EXPECT_EQ(rounded, float(kSum));
  int8_t saturated = 0;
  store_element(DType::i8, &saturated, 0, -kSum);
  EXPECT_EQ(saturated, -128);
}

TEST(Element, FourBitsAndTheirScalesAreAsOcpDefinesThem) {
  for (uint32_t code = 0; code < 16; ++code) {
    const uint32_t exponent = code >> 1 & 3, fraction = code & 1;
    const double magnitude = std::ldexp((exponent > 0 ? 2 : 0) + fraction, int(exponent > 0 ? exponent : 1) - 2);
    EXPECT_EQ(e2m1_to_float(code), code < 8 ? magnitude : -magnitude) << code;
  }
  for (uint32_t bits = 0; bits < 255; ++bits)
    EXPECT_EQ(e8m0_to_float(uint8_t(bits)), std::ldexp(1.0, int(bits) - 127)) << bits;
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

TEST(Element, HasTheMantissaAndTheLargestValueOfItsTable) {
  for (const DType type : values_of<DType>) {
    const DTypeInfo info = info_of(type);
    SCOPED_TRACE(info.name);
    if (type != DType::i32) {  // whose largest value no float32 has
      EXPECT_EQ(rounded_to(type, info.largest), info.largest);
    }
    if (!info.is_float) continue;
    const float step = std::ldexp(1.0f, -int(info.mantissa));
    EXPECT_EQ(rounded_to(type, 1 + step), 1 + step);
    EXPECT_EQ(rounded_to(type, 1 + step / 2), 1);
    const float beyond = rounded_to(type, info.largest * (1 + step));
    EXPECT_EQ(beyond, info.bytes == 1 ? info.largest : std::numeric_limits<float>::infinity());
  }
}

}  // namespace
}  // namespace cleave
