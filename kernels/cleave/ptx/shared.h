// Single accesses to shared memory by 32-bit address.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

CLEAVE_DEVICE void store_shared_16(uint32_t to, uint16_t value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(value) : "memory");
}

CLEAVE_DEVICE void store_shared_8(uint32_t to, uint8_t value) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(to), "r"(uint32_t(value)) : "memory");
}

CLEAVE_DEVICE uint32_t load_shared_8(uint32_t from) {
  uint32_t value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}

CLEAVE_DEVICE uint32_t load_shared_16(uint32_t from) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(from) : "memory");
  return value;
}

CLEAVE_DEVICE void load_shared_pair(uint32_t from, float (&v)[2]) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(from) : "memory");
}

CLEAVE_DEVICE void store_shared_pair(uint32_t to, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
}

CLEAVE_DEVICE void load_shared_128(uint32_t from, uint32_t (&v)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from)
               : "memory");
}

CLEAVE_DEVICE void store_shared_128(uint32_t to, const uint32_t (&v)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

CLEAVE_DEVICE uint32_t load_shared_32(uint32_t from) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}

CLEAVE_DEVICE void store_shared_32(uint32_t to, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}

/// 2, 4, 8 or 16 bytes, aligned to as many, in as many registers as they fill.
template <uint32_t Bytes>
CLEAVE_DEVICE void load_shared(uint32_t from, uint32_t* v) {
  static_assert(Bytes == 2 || Bytes == 4 || Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 2) {
    v[0] = load_shared_16(from);
  } else if constexpr (Bytes == 4) {
    v[0] = load_shared_32(from);
  } else if constexpr (Bytes == 8) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(from) : "memory");
  } else {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from)
                 : "memory");
  }
}

/// 4, 8 or 16 bytes, aligned to as many.
template <uint32_t Bytes>
CLEAVE_DEVICE void copy_shared_to_global(void* to, uint32_t from) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 4) {
    *static_cast<uint32_t*>(to) = load_shared_32(from);
  } else if constexpr (Bytes == 8) {
    float pair[2];
    load_shared_pair(from, pair);
    *static_cast<float2*>(to) = make_float2(pair[0], pair[1]);
  } else {
    uint32_t v[4];
    load_shared_128(from, v);
    *static_cast<uint4*>(to) = make_uint4(v[0], v[1], v[2], v[3]);
  }
}

}  // namespace cleave::ptx
