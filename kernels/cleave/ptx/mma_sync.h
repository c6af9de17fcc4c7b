// Ampere's tensor-core instructions: ldmatrix and warp-wide mma.
#pragma once

#include "cleave/core/enums.h"

namespace cleave::ptx {

/// Four 8 x 8 matrices of 16-bit elements (or 8 x 4 of 32-bit ones); lane l gives the address of
/// row l % 8 of matrix l / 8.
template <bool Transpose>
CLEAVE_DEVICE void ldmatrix(uint32_t address, uint32_t (&v)[4]) {
  if constexpr (Transpose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(address)
                 : "memory");
  }
}

// clang-format off

#define CLEAVE_MMA(TYPES, SHAPE, T)                                                                \
  asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES                                         \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                  \
               : T(d[0]), T(d[1]), T(d[2]), T(d[3])                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

/// d[16, 8] += a[16, 32 bytes] * b[32 bytes, 8], float32 accumulators. 8-bit floats: sm_89 and later.
template <DType TypeA, DType TypeB>
CLEAVE_DEVICE void mma(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (TypeA == DType::bf16) {
    CLEAVE_MMA("f32.bf16.bf16.f32", "m16n8k16", "+f");
  } else if constexpr (TypeA == DType::f16) {
    CLEAVE_MMA("f32.f16.f16.f32", "m16n8k16", "+f");
  } else if constexpr (TypeA == DType::f32) {
    CLEAVE_MMA("f32.tf32.tf32.f32", "m16n8k8", "+f");
  } else if constexpr (TypeA == DType::e4m3 && TypeB == DType::e4m3) {
    CLEAVE_MMA("f32.e4m3.e4m3.f32", "m16n8k32", "+f");
  } else if constexpr (TypeA == DType::e4m3) {
    CLEAVE_MMA("f32.e4m3.e5m2.f32", "m16n8k32", "+f");
  } else if constexpr (TypeB == DType::e4m3) {
    CLEAVE_MMA("f32.e5m2.e4m3.f32", "m16n8k32", "+f");
  } else {
    CLEAVE_MMA("f32.e5m2.e5m2.f32", "m16n8k32", "+f");
  }
}

/// The same for 8-bit integers, with int32 accumulators.
template <DType, DType>
CLEAVE_DEVICE void mma(int32_t* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  CLEAVE_MMA("s32.s8.s8.s32", "m16n8k32", "+r");
}

#undef CLEAVE_MMA

// clang-format on

}  // namespace cleave::ptx
