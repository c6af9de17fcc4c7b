// float32 as sums of two parts: how close they are, and which stand alone.

#include "cleave/core/float_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace cleave {
namespace {

struct Format {
  int bits;         // of a significand
  double smallest;  // subnormal
};

template <Precision P>
constexpr Format kFormat = P == Precision::bf16x3 ? Format{8, 0x1p-133} : Format{11, 0x1p-136};

template <Precision P>
bool is_part(float x) {
  return (float_bits(x) & ((1u << (24 - kFormat<P>.bits)) - 1)) == 0;
}

template <Precision P>
void expect_close(float x) {
  const FloatParts parts = float_parts<P>(x);
  SCOPED_TRACE(testing::Message() << std::hexfloat << x << " = " << parts.high << " + " << parts.low);
  EXPECT_TRUE(is_part<P>(parts.high) && is_part<P>(parts.low));
  ASSERT_FALSE(stands_alone(float_bits(parts.high)));
  const double off = std::abs(double(x) - parts.high - parts.low), bits = kFormat<P>.bits, size = std::abs(double(x));
  EXPECT_LE(off, std::max(std::ldexp(size, -int(2 * bits + 1)), kFormat<P>.smallest));
  EXPECT_LE(std::abs(parts.low), std::max(std::ldexp(size, -int(bits)), kFormat<P>.smallest));
}

template <Precision P>
void expect_close() {
  std::mt19937 random(1);
  constexpr uint32_t most = 0x7f800000u - (1u << (23 - kFormat<P>.bits));  // rounds to an infinity
  for (int i = 0; i < 200'000; ++i) {
    const uint32_t bits = random();
    if ((bits & 0x7fffffffu) < most) expect_close<P>(bits_float(bits));
    if (testing::Test::HasFailure()) return;
  }
  for (const uint32_t bits : {0u, 1u, 0x007fffffu, 0x00800000u, most - 1, 0x3f808000u, 0x3f801000u, 0x3fffffffu})
    expect_close<P>(bits_float(bits));
}

TEST(FloatParts, AreCloseTogether) {
  expect_close<Precision::tf32x3>();
  expect_close<Precision::bf16x3>();
}

template <Precision P>
void expect_alone(float x) {
  const FloatParts parts = float_parts<P>(x);
  EXPECT_TRUE(stands_alone(float_bits(parts.high))) << x;
  EXPECT_EQ(parts.high, std::copysign(std::numeric_limits<float>::infinity(), x));
  EXPECT_TRUE(std::isnan(parts.low * 0)) << "or nobody looks for it";
}

TEST(FloatParts, InfinitiesStandAlone) {
  const float infinity = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
  for (const float x : {infinity, -infinity, largest, -largest}) {
    expect_alone<Precision::tf32x3>(x);
    expect_alone<Precision::bf16x3>(x);
  }
}

template <Precision P>
void expect_nan(float x) {
  const FloatParts parts = float_parts<P>(x);
  EXPECT_TRUE(std::isnan(parts.high) && std::isnan(parts.low));
}

TEST(FloatParts, PartsOfANanAreNans) {
  for (const uint32_t nan : {0x7f800001u, 0x7ffff000u, 0x7fffffffu, 0xffc00000u, 0xffffffffu, 0xff801000u}) {
    expect_nan<Precision::tf32x3>(bits_float(nan));
    expect_nan<Precision::bf16x3>(bits_float(nan));
  }
}

}  // namespace
}  // namespace cleave
