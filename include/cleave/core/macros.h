// What every other header needs, for three compilers: NVRTC (no standard library), nvcc and the
// host compiler.
#pragma once

#if defined(__CUDACC_RTC__)
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif

#if defined(__CUDACC__)
// Code that the host (planner, CPU backend, tests) and the kernels share, word for word.
#define CLEAVE_HD __host__ __device__ __forceinline__
#define CLEAVE_DEVICE __device__ __forceinline__
#define CLEAVE_UNROLL _Pragma("unroll")
#define CLEAVE_NO_UNROLL _Pragma("unroll 1")
#else
#define CLEAVE_HD inline
#define CLEAVE_UNROLL
#endif
