// Codes of 4 bits as 8-bit elements: every code, beside every zero point, in every place of a word.
#include "cleave/weights/dequantise_bytes.h"

#include <gtest/gtest.h>

#include <cmath>

namespace cleave {
namespace {

constexpr GemmConfig config_of(DType type, WeightFormat format, bool has_zero) {
  GemmConfig c;
  c.operands.a = c.operands.b = type;
  c.weights = {.format = format, .has_zero = has_zero};
  c.scales.promote = true;
  return c;
}

/// Words whose bytes have code `code` and, in the other half, others.
template <GemmConfig C, class Value>
void expect_elements(Value value) {
  using Dequantise = DequantiseBytes<C>;
  const float factor = weight_factor(C);
  for (uint32_t zero = 0; zero < 16; ++zero) {
    const uint32_t zeros[2] = {zero, 15 - zero}, one[2] = {0x3c00, 0x3c00}, exponents[2] = {127, 127};
    const uint32_t eights[2] = {0x38, 0x38};  // of e4m3
    typename Dequantise::Row rows[2];
    const auto& of_ones = C.weights.format == WeightFormat::mxfp4   ? exponents
                          : C.weights.format == WeightFormat::nvfp4 ? eights
                                                                    : one;
    Dequantise::rows(of_ones, zeros, rows);
    EXPECT_EQ(rows[0].scale, 1.0f);
    for (uint32_t first = 0; first < 16; ++first) {
      uint32_t word = 0;
      for (uint32_t i = 0; i < 4; ++i) word |= ((first + i) % 16 | (first * 7 + 3 * i + zero) % 16 << 4) << 8 * i;
      for (const bool upper : {false, true}) {
        const uint32_t quad = Dequantise::quad(word, upper, rows[upper]);
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t code = word >> (8 * i + 4 * upper) & 15;
          const auto byte = uint8_t(quad >> 8 * i);
          const float element = C.operands.a == DType::i8 ? float(int8_t(byte)) : fp8_to_float<3>(byte);
          EXPECT_EQ(element * factor, value(code, zeros[upper])) << code << " " << zeros[upper] << " " << upper;
        }
      }
    }
  }
}

TEST(DequantiseBytes, Int4IsExact) {
  const auto less_eight = [](uint32_t code, uint32_t) { return float(code) - 8; };
  const auto less_zero = [](uint32_t code, uint32_t zero) { return float(code) - float(zero); };
  expect_elements<config_of(DType::e4m3, WeightFormat::int4, false)>(less_eight);
  expect_elements<config_of(DType::e4m3, WeightFormat::int4, true)>(less_zero);
  expect_elements<config_of(DType::i8, WeightFormat::int4, false)>(less_eight);
  expect_elements<config_of(DType::i8, WeightFormat::int4, true)>(less_zero);
}

TEST(DequantiseBytes, E2m1IsExact) {
  const auto value = [](uint32_t code, uint32_t) { return e2m1_to_float(code); };
  expect_elements<config_of(DType::e4m3, WeightFormat::mxfp4, false)>(value);
  expect_elements<config_of(DType::e4m3, WeightFormat::nvfp4, false)>(value);
  expect_elements<config_of(DType::i8, WeightFormat::mxfp4, false)>(value);
  expect_elements<config_of(DType::i8, WeightFormat::nvfp4, false)>(value);
}

TEST(DequantiseBytes, ScalesOfEveryByte) {
  constexpr GemmConfig kConfig = config_of(DType::e4m3, WeightFormat::mxfp4, false);
  for (uint32_t scale = 0; scale < 256; ++scale) {
    const uint32_t scales[2] = {scale, scale}, zeros[2] = {};
    DequantiseBytes<kConfig>::Row rows[2];
    DequantiseBytes<kConfig>::rows(scales, zeros, rows);
    if (scale == 255) {
      EXPECT_TRUE(std::isnan(rows[0].scale));
    } else {
      EXPECT_EQ(rows[0].scale, std::ldexp(1.0f, int(scale) - 127));
    }
    constexpr GemmConfig kOfFloats = config_of(DType::i8, WeightFormat::nvfp4, false);
    const uint32_t floats[2] = {scale, 255 - scale};
    DequantiseBytes<kOfFloats>::Row of_floats[2];
    DequantiseBytes<kOfFloats>::rows(floats, zeros, of_floats);
    for (uint32_t i = 0; i < 2; ++i) {
      const float expected = fp8_to_float<3>(uint8_t(floats[i]));
      EXPECT_TRUE(of_floats[i].scale == expected || (std::isnan(of_floats[i].scale) && std::isnan(expected)));
    }
  }
}

}  // namespace
}  // namespace cleave
