// Conversions between float32 and the stored element types, host and device, without NVIDIA's type
// headers (they would cost NVRTC more time than the rest of a kernel).
#pragma once

#include "cleave/core/enums.h"

#if !defined(__CUDA_ARCH__)
#include <bit>
#endif

namespace cleave {

CLEAVE_HD uint32_t float_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}

CLEAVE_HD float bits_float(uint32_t x) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(x);
#else
  return std::bit_cast<float>(x);
#endif
}

CLEAVE_HD float bf16_to_float(uint16_t bits) {
  return bits_float(uint32_t(bits) << 16);
}

CLEAVE_HD uint16_t float_to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40u);  // stay a NaN
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// The nearest TF32 number, ties away from zero; a NaN stays one.
CLEAVE_HD float round_to_tf32(float x) {
#if defined(__CUDA_ARCH__)
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return bits_float(rounded);
#else
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return x;
  return bits_float((bits + 0x1000u) & ~0x1fffu);
#endif
}

CLEAVE_HD float f16_to_float(uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#else
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return bits_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Shifting exponent and mantissa into place leaves the exponent 112 too small; the product
  // repairs that, exactly, for subnormal halves too.
  const float scaled = bits_float(magnitude << 13) * bits_float(0x77800000u);
  return bits_float(sign | float_bits(scaled));
#endif
}

CLEAVE_HD uint16_t float_to_f16(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds past the largest half
  if (magnitude < 0x38800000u) {                                  // subnormal half
    // Adding 0.5 aligns the value so that the float adder rounds it to a multiple of 2^-24, ties to
    // even.
    return uint16_t(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
#endif
}

/// An 8-bit float with `mantissa` stored bits: e4m3 (3; no infinities, one NaN) or e5m2 (2).
template <int mantissa>
CLEAVE_HD float fp8_to_float(uint8_t bits) {
  const uint32_t sign = uint32_t(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
  if constexpr (mantissa == 3) {
    if (magnitude == 0x7fu) return bits_float(sign | 0x7fc00000u);
  } else {
    if (magnitude >= 0x7cu) return bits_float(sign | 0x7f800000u | (magnitude & 3u) << 21);
  }
  // As for half: shifted into place, the exponent is too small by 127 - bias; one exact product
  // repairs that, for subnormals too.
  constexpr uint32_t bias = mantissa == 3 ? 7 : 15;
  const float scaled = bits_float(magnitude << (23 - mantissa)) * bits_float((254 - bias) << 23);
  return bits_float(sign | float_bits(scaled));
}

/// What the 16 codes of e2m1 stand for: a sign, and a magnitude.
CLEAVE_HD constexpr float e2m1_to_float(uint32_t code) {
  constexpr float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return code < 8 ? magnitudes[code] : -magnitudes[code - 8];
}

/// E8M0 of OCP's formats: 2^(bits - 127), of which the least is subnormal, or a NaN.
CLEAVE_HD float e8m0_to_float(uint8_t bits) {
  if (bits == 255) return bits_float(0x7fc00000);
  return bits_float(bits == 0 ? 0x00400000 : uint32_t(bits) << 23);
}

/// Rounded to nearest even; what is too large becomes the largest finite value, a NaN stays one.
template <int mantissa>
CLEAVE_HD uint8_t float_to_fp8(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t pair;
  if constexpr (mantissa == 3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  }
  return uint8_t(pair);
#else
  constexpr uint32_t bias = mantissa == 3 ? 7 : 15;
  constexpr uint32_t largest = mantissa == 3 ? 0x7eu : 0x7bu;  // 448, 57344
  const uint32_t bits = float_bits(x), sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint8_t(sign | 0x7fu);
  constexpr uint32_t smallest_normal = (128 - bias) << 23;
  uint32_t rounded;
  if (magnitude < smallest_normal) {
    // The float adder rounds to a multiple of the subnormals' step, as for half.
    const uint32_t magic = (127 + 23 - bias + 1 - mantissa) << 23;
    rounded = float_bits(bits_float(magnitude) + bits_float(magic)) - magic;
  } else {
    constexpr uint32_t shift = 23 - mantissa;
    const uint32_t up = magnitude + (1u << (shift - 1)) - 1 + ((magnitude >> shift) & 1u);
    rounded = (up - ((127 - bias) << 23)) >> shift;
  }
  return uint8_t(sign | (rounded > largest ? largest : rounded));
#endif
}

/// Rounded to nearest even and saturated; a NaN becomes 0.
CLEAVE_HD int8_t float_to_i8(float x) {
#if defined(__CUDA_ARCH__)
  int32_t value;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(value) : "f"(x));
  return int8_t(value);
#else
  if (!(x == x)) return 0;
  if (x <= -128.0f) return -128;
  if (x >= 127.0f) return 127;
  // Near zero the adder rounds to integers, ties to even.
  const float magic = 12582912.0f;
  return int8_t(int32_t(float_bits(x + magic)) - int32_t(float_bits(magic)));
#endif
}

/// Element `index` of an array of `type`, as float32 (an `i32` beyond 2^24 is rounded).
CLEAVE_HD float load_element(DType type, const void* base, int64_t index) {
  switch (type) {
    case DType::f16:
      return f16_to_float(static_cast<const uint16_t*>(base)[index]);
    case DType::bf16:
      return bf16_to_float(static_cast<const uint16_t*>(base)[index]);
    case DType::i8:
      return static_cast<const int8_t*>(base)[index];
    case DType::e4m3:
      return fp8_to_float<3>(static_cast<const uint8_t*>(base)[index]);
    case DType::e5m2:
      return fp8_to_float<2>(static_cast<const uint8_t*>(base)[index]);
    case DType::i32:
      return float(static_cast<const int32_t*>(base)[index]);
    case DType::f32:
      break;
  }
  return static_cast<const float*>(base)[index];
}

CLEAVE_HD void store_element(DType type, void* base, int64_t index, float value) {
  switch (type) {
    case DType::f16:
      static_cast<uint16_t*>(base)[index] = float_to_f16(value);
      return;
    case DType::bf16:
      static_cast<uint16_t*>(base)[index] = float_to_bf16(value);
      return;
    case DType::i8:
      static_cast<int8_t*>(base)[index] = float_to_i8(value);
      return;
    case DType::e4m3:
      static_cast<uint8_t*>(base)[index] = float_to_fp8<3>(value);
      return;
    case DType::e5m2:
      static_cast<uint8_t*>(base)[index] = float_to_fp8<2>(value);
      return;
    case DType::i32:
      static_cast<int32_t*>(base)[index] = int32_t(value);
      return;
    case DType::f32:
      break;
  }
  static_cast<float*>(base)[index] = value;
}

/// An element of `type` from its bits, the lowest of `bits`; and the bits that store `value`.
CLEAVE_HD float element_from_bits(DType type, uint32_t bits) {
  switch (type) {
    case DType::f16:
      return f16_to_float(uint16_t(bits));
    case DType::bf16:
      return bf16_to_float(uint16_t(bits));
    case DType::i8:
      return int8_t(bits);
    case DType::e4m3:
      return fp8_to_float<3>(uint8_t(bits));
    case DType::e5m2:
      return fp8_to_float<2>(uint8_t(bits));
    case DType::i32:
      return float(int32_t(bits));
    case DType::f32:
      break;
  }
  return bits_float(bits);
}

CLEAVE_HD uint32_t element_bits(DType type, float value) {
  switch (type) {
    case DType::f16:
      return float_to_f16(value);
    case DType::bf16:
      return float_to_bf16(value);
    case DType::i8:
      return uint8_t(float_to_i8(value));
    case DType::e4m3:
      return float_to_fp8<3>(value);
    case DType::e5m2:
      return float_to_fp8<2>(value);
    case DType::i32:
      return uint32_t(int32_t(value));
    case DType::f32:
      break;
  }
  return float_bits(value);
}

/// `x`, as an element of `type` holds it.
CLEAVE_HD float rounded_to(DType type, float x) {
  return element_from_bits(type, element_bits(type, x));
}

/// A sum that is stored as it is: an `i32` D keeps every bit of it.
CLEAVE_HD void store_element(DType type, void* base, int64_t index, int32_t value) {
  if (type == DType::i32) {
    static_cast<int32_t*>(base)[index] = value;
  } else {
    store_element(type, base, index, float(value));
  }
}

#if defined(__CUDACC__)
/// Two neighbours, 8-bit floats, `low` first in memory.
template <int mantissa>
CLEAVE_DEVICE uint16_t pack_fp8(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t pair;
  if constexpr (mantissa == 3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return uint16_t(float_to_fp8<mantissa>(low) | float_to_fp8<mantissa>(high) << 8);
#endif
}

/// Two neighbours of an 8-bit type, `low` first in memory.
CLEAVE_DEVICE uint32_t pack_bytes(DType type, float low, float high) {
  if (type == DType::e4m3) return pack_fp8<3>(low, high);
  if (type == DType::e5m2) return pack_fp8<2>(low, high);
  return element_bits(type, low) | element_bits(type, high) << 8;
}

/// Two neighbours in one 32-bit register, `low` first in memory. 16-bit types only.
CLEAVE_DEVICE uint32_t pack_pair(DType type, float low, float high) {
  uint32_t bits;
  if (type == DType::f16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  }
  return bits;
}
#endif

/// Two numbers of e4m3, `low` and `high` without more bits, as a pair of float16, which has room for all of them.
CLEAVE_HD uint32_t e4m3_to_f16_pair(uint32_t low, uint32_t high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(uint16_t(low | high << 8)));
  return pair;
#else
  return float_to_f16(fp8_to_float<3>(uint8_t(low))) | uint32_t(float_to_f16(fp8_to_float<3>(uint8_t(high)))) << 16;
#endif
}

}  // namespace cleave
