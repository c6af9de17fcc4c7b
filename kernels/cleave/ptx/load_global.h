// Reads of global memory that may or may not happen, without a branch; and fetching ahead of reads.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

/// Has L2 fetch the line at `p`.
CLEAVE_DEVICE void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/// 16 bytes that nobody reads again: L1 keeps none of them. Volatile, and not by the read-only path, as below.
CLEAVE_DEVICE void load_global_once(uint32_t (&to)[4], const void* from) {
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "l"(from));
}

#define CLEAVE_LOAD_GLOBAL_IF(TYPE)  \
  asm volatile(                      \
      "{\n"                          \
      ".reg .pred exists;\n"         \
      "setp.ne.u32 exists, %2, 0;\n" \
      "mov.b32 %0, 0;\n"             \
      "@exists ld.global." TYPE      \
      " %0, [%1];\n"                 \
      "}"                            \
      : "=&r"(to[0])                 \
      : "l"(from), "r"(uint32_t(exists)))

/// `Bytes` (1, 2, 4, 8 or 16) in as many registers as they fill; zeros, unless they exist. Volatile, so that many stay
/// begun one after another before the first is used. Not by the read-only path (.nc): a kernel that
/// was launched early lives while the one before it still writes.
template <uint32_t Bytes>
CLEAVE_DEVICE void load_global_if(uint32_t* to, const void* from, bool exists) {
  if constexpr (Bytes == 1) {
    CLEAVE_LOAD_GLOBAL_IF("u8");
  } else if constexpr (Bytes == 2) {
    CLEAVE_LOAD_GLOBAL_IF("u16");
  } else if constexpr (Bytes == 4) {
    CLEAVE_LOAD_GLOBAL_IF("u32");
  } else if constexpr (Bytes == 8) {
    asm volatile(
        "{\n"
        ".reg .pred exists;\n"
        "setp.ne.u32 exists, %3, 0;\n"
        "mov.b32 %0, 0;\n"
        "mov.b32 %1, 0;\n"
        "@exists ld.global.v2.u32 {%0, %1}, [%2];\n"
        "}"
        : "=&r"(to[0]), "=&r"(to[1])
        : "l"(from), "r"(uint32_t(exists)));
  } else {
    asm volatile(
        "{\n"
        ".reg .pred exists;\n"
        "setp.ne.u32 exists, %5, 0;\n"
        "mov.b32 %0, 0;\n"
        "mov.b32 %1, 0;\n"
        "mov.b32 %2, 0;\n"
        "mov.b32 %3, 0;\n"
        "@exists ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
        : "l"(from), "r"(uint32_t(exists)));
  }
}

#undef CLEAVE_LOAD_GLOBAL_IF

#define CLEAVE_LOAD_GLOBAL_OVER(TYPE) \
  asm volatile(                       \
      "{\n"                           \
      ".reg .pred exists;\n"          \
      "setp.ne.u32 exists, %2, 0;\n"  \
      "@exists ld.global." TYPE       \
      " %0, [%1];\n"                  \
      "}"                             \
      : "+r"(to[0])                   \
      : "l"(from), "r"(any))

/// The same of 2, 4, 8 or 16 bytes, but that registers keep what they had unless there is `any` bit.
template <uint32_t Bytes>
CLEAVE_DEVICE void load_global_over(uint32_t* to, const void* from, uint32_t any) {
  static_assert(Bytes == 2 || Bytes == 4 || Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 2) {
    CLEAVE_LOAD_GLOBAL_OVER("u16");
  } else if constexpr (Bytes == 4) {
    CLEAVE_LOAD_GLOBAL_OVER("u32");
  } else if constexpr (Bytes == 8) {
    asm volatile(
        "{\n"
        ".reg .pred exists;\n"
        "setp.ne.u32 exists, %3, 0;\n"
        "@exists ld.global.v2.u32 {%0, %1}, [%2];\n"
        "}"
        : "+r"(to[0]), "+r"(to[1])
        : "l"(from), "r"(any));
  } else {
    asm volatile(
        "{\n"
        ".reg .pred exists;\n"
        "setp.ne.u32 exists, %5, 0;\n"
        "@exists ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
        : "l"(from), "r"(any));
  }
}

#undef CLEAVE_LOAD_GLOBAL_OVER

/// The same of 16 bytes that other CTAs wrote during this launch: past L1.
CLEAVE_DEVICE float4 load_l2_if(const float4* from, bool exists) {
  float4 v;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.u32 exists, %5, 0;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "mov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n"
      "@exists ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "=&f"(v.x), "=&f"(v.y), "=&f"(v.z), "=&f"(v.w)
      : "l"(from), "r"(uint32_t(exists)));
  return v;
}

}  // namespace cleave::ptx
