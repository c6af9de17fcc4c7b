// Warpgroup matrix multiply-accumulate (sm_90a) with A in registers: D[64, N] += A[64, 32 bytes] * B[32 bytes, N], both
// of one type, B in shared memory. wgmma.h has the rest, and the lists of accumulators.
//
// A's registers belong to the instruction until its group is done. ptxas sees to that by serialising all of them where
// a branch, a call or an index that it cannot resolve keeps it from knowing which those are.
#pragma once

#include "cleave/ptx/wgmma.h"

namespace cleave::ptx {

/// The same as Wgmma, for a thread's four registers of A. 8-bit types are contiguous along K.
template <DType Type, uint32_t N, int TransposeB>
struct WgmmaRegisters;

/// Registers that an instruction reads are kept until here.
CLEAVE_DEVICE void wgmma_pin(uint32_t& fragment) {
  asm volatile("" : "+r"(fragment)::"memory");
}

// clang-format off

// A, B, S: operand numbers of A's registers, of B's descriptor and of `accumulate`; TB: of B's transpose flag.
#define CLEAVE_WGMMA_REGISTERS_ASM(SHAPE, N, T, A, B, S, TAIL, ...)                                              \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " S ", 0;"                                                         \
               "wgmma.mma_async.sync.aligned." SHAPE " {" CLEAVE_REGS_##N "}, {" A "}, " B ", p" TAIL ";}"       \
               : CLEAVE_OUTS_##N(T)                                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate) __VA_ARGS__)
#define CLEAVE_WGMMA_REGISTERS_16BIT(N, A, B, S, TB, TYPE)                                                       \
  template <int TransposeB>                                                                                      \
  struct WgmmaRegisters<DType::TYPE, N, TransposeB> {                                                            \
    CLEAVE_DEVICE static void mma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, uint32_t accumulate) {  \
      CLEAVE_WGMMA_REGISTERS_ASM("m64n" #N "k16.f32." #TYPE "." #TYPE, N, "+f", A, B, S, ", 1, 1, " TB,          \
                                 , "n"(TransposeB));                                                             \
    }                                                                                                            \
  };
#define CLEAVE_WGMMA_REGISTERS_8BIT(N, A, B, S, SHAPE, TYPE, SUM, T, TAIL)                                       \
  template <>                                                                                                    \
  struct WgmmaRegisters<DType::TYPE, N, 0> {                                                                     \
    CLEAVE_DEVICE static void mma(SUM (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, uint32_t accumulate) {    \
      CLEAVE_WGMMA_REGISTERS_ASM(SHAPE, N, T, A, B, S, TAIL);                                                    \
    }                                                                                                            \
  };
#define CLEAVE_WGMMA_REGISTERS(N, A, B, S, TB)                                                                   \
  CLEAVE_WGMMA_REGISTERS_16BIT(N, A, B, S, TB, bf16)                                                             \
  CLEAVE_WGMMA_REGISTERS_16BIT(N, A, B, S, TB, f16)                                                              \
  CLEAVE_WGMMA_REGISTERS_8BIT(N, A, B, S, "m64n" #N "k32.f32.e4m3.e4m3", e4m3, float, "+f", ", 1, 1")            \
  CLEAVE_WGMMA_REGISTERS_8BIT(N, A, B, S, "m64n" #N "k32.s32.s8.s8", i8, int32_t, "+r", "")
CLEAVE_WGMMA_REGISTERS(16, "%8, %9, %10, %11", "%12", "%13", "%14")
CLEAVE_WGMMA_REGISTERS(32, "%16, %17, %18, %19", "%20", "%21", "%22")
CLEAVE_WGMMA_REGISTERS(48, "%24, %25, %26, %27", "%28", "%29", "%30")
CLEAVE_WGMMA_REGISTERS(64, "%32, %33, %34, %35", "%36", "%37", "%38")
CLEAVE_WGMMA_REGISTERS(80, "%40, %41, %42, %43", "%44", "%45", "%46")
CLEAVE_WGMMA_REGISTERS(96, "%48, %49, %50, %51", "%52", "%53", "%54")
CLEAVE_WGMMA_REGISTERS(112, "%56, %57, %58, %59", "%60", "%61", "%62")
CLEAVE_WGMMA_REGISTERS(128, "%64, %65, %66, %67", "%68", "%69", "%70")
CLEAVE_WGMMA_REGISTERS(144, "%72, %73, %74, %75", "%76", "%77", "%78")
CLEAVE_WGMMA_REGISTERS(160, "%80, %81, %82, %83", "%84", "%85", "%86")
CLEAVE_WGMMA_REGISTERS(176, "%88, %89, %90, %91", "%92", "%93", "%94")
CLEAVE_WGMMA_REGISTERS(192, "%96, %97, %98, %99", "%100", "%101", "%102")
CLEAVE_WGMMA_REGISTERS(208, "%104, %105, %106, %107", "%108", "%109", "%110")
CLEAVE_WGMMA_REGISTERS(224, "%112, %113, %114, %115", "%116", "%117", "%118")
CLEAVE_WGMMA_REGISTERS(240, "%120, %121, %122, %123", "%124", "%125", "%126")
CLEAVE_WGMMA_REGISTERS(256, "%128, %129, %130, %131", "%132", "%133", "%134")

#undef CLEAVE_WGMMA_REGISTERS
#undef CLEAVE_WGMMA_REGISTERS_8BIT
#undef CLEAVE_WGMMA_REGISTERS_16BIT
#undef CLEAVE_WGMMA_REGISTERS_ASM

// clang-format on

}  // namespace cleave::ptx
