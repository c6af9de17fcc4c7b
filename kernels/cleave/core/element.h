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

/// Element `index` of an array of `type`, as float32.
CLEAVE_HD float load_element(DType type, const void* base, int64_t index) {
  switch (type) {
    case DType::f16:
      return f16_to_float(static_cast<const uint16_t*>(base)[index]);
    case DType::bf16:
      return bf16_to_float(static_cast<const uint16_t*>(base)[index]);
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
    case DType::f32:
      break;
  }
  static_cast<float*>(base)[index] = value;
}

#if defined(__CUDACC__)
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

}  // namespace cleave
