// Warpgroup matrix multiply-accumulate (sm_90a): D[64, N] += A[64, 32 bytes] * B[32 bytes, N],
// operands in shared memory, float32 (int32 for i8) accumulators in registers.
#pragma once

#include "cleave/core/enums.h"

namespace cleave::ptx {

CLEAVE_DEVICE void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
CLEAVE_DEVICE void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most `Pending` committed groups of this warpgroup are in flight.
template <int Pending>
CLEAVE_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Keeps the compiler from moving an accumulator's uses across the asynchronous instructions.
CLEAVE_DEVICE void wgmma_pin(float& accumulator) {
  asm volatile("" : "+f"(accumulator)::"memory");
}
CLEAVE_DEVICE void wgmma_pin(int32_t& accumulator) {
  asm volatile("" : "+r"(accumulator)::"memory");
}

/// A copy that the compiler does not see through. Accumulators that change places would else be copied from register to
/// register between the instructions, which makes ptxas wait for each.
CLEAVE_DEVICE float opaque_copy(float value) {
  float copy;
  asm volatile("mov.b32 %0, %1;" : "=f"(copy) : "f"(value));
  return copy;
}

/// One wgmma instruction. N: a multiple of 16 up to 256; of 8-bit floats 152, too. TransposeA/B: 1 if the operand is
/// MN-major (16-bit types only). `accumulate` 0 overwrites the accumulators.
template <DType TypeA, DType TypeB, uint32_t N, int TransposeA, int TransposeB>
struct Wgmma;

// clang-format off

// Inline assembly wants every register spelled out. The list of each N extends that of N - 16 (152: of 144), so a width
// is one line here, one there, and one at the end.
#define CLEAVE_REGS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define CLEAVE_REGS_32 CLEAVE_REGS_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define CLEAVE_REGS_48 CLEAVE_REGS_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define CLEAVE_REGS_64 CLEAVE_REGS_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define CLEAVE_REGS_80 CLEAVE_REGS_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define CLEAVE_REGS_96 CLEAVE_REGS_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define CLEAVE_REGS_112 CLEAVE_REGS_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define CLEAVE_REGS_128 CLEAVE_REGS_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define CLEAVE_REGS_144 CLEAVE_REGS_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define CLEAVE_REGS_152 CLEAVE_REGS_144 ", %72, %73, %74, %75"
#define CLEAVE_REGS_160 CLEAVE_REGS_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define CLEAVE_REGS_176 CLEAVE_REGS_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define CLEAVE_REGS_192 CLEAVE_REGS_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define CLEAVE_REGS_208 CLEAVE_REGS_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define CLEAVE_REGS_224 CLEAVE_REGS_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define CLEAVE_REGS_240 CLEAVE_REGS_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define CLEAVE_REGS_256 CLEAVE_REGS_240 ", %120, %121, %122, %123, %124, %125, %126, %127"

// T: the constraint of an accumulator, "+f" or "+r".
#define CLEAVE_OUTS(T, i) \
  T(d[i]), T(d[i + 1]), T(d[i + 2]), T(d[i + 3]), T(d[i + 4]), T(d[i + 5]), T(d[i + 6]), T(d[i + 7])
#define CLEAVE_OUTS_16(T) CLEAVE_OUTS(T, 0)
#define CLEAVE_OUTS_32(T) CLEAVE_OUTS_16(T), CLEAVE_OUTS(T, 8)
#define CLEAVE_OUTS_48(T) CLEAVE_OUTS_32(T), CLEAVE_OUTS(T, 16)
#define CLEAVE_OUTS_64(T) CLEAVE_OUTS_48(T), CLEAVE_OUTS(T, 24)
#define CLEAVE_OUTS_80(T) CLEAVE_OUTS_64(T), CLEAVE_OUTS(T, 32)
#define CLEAVE_OUTS_96(T) CLEAVE_OUTS_80(T), CLEAVE_OUTS(T, 40)
#define CLEAVE_OUTS_112(T) CLEAVE_OUTS_96(T), CLEAVE_OUTS(T, 48)
#define CLEAVE_OUTS_128(T) CLEAVE_OUTS_112(T), CLEAVE_OUTS(T, 56)
#define CLEAVE_OUTS_144(T) CLEAVE_OUTS_128(T), CLEAVE_OUTS(T, 64)
#define CLEAVE_OUTS_152(T) CLEAVE_OUTS_144(T), T(d[72]), T(d[73]), T(d[74]), T(d[75])
#define CLEAVE_OUTS_160(T) CLEAVE_OUTS_144(T), CLEAVE_OUTS(T, 72)
#define CLEAVE_OUTS_176(T) CLEAVE_OUTS_160(T), CLEAVE_OUTS(T, 80)
#define CLEAVE_OUTS_192(T) CLEAVE_OUTS_176(T), CLEAVE_OUTS(T, 88)
#define CLEAVE_OUTS_208(T) CLEAVE_OUTS_192(T), CLEAVE_OUTS(T, 96)
#define CLEAVE_OUTS_224(T) CLEAVE_OUTS_208(T), CLEAVE_OUTS(T, 104)
#define CLEAVE_OUTS_240(T) CLEAVE_OUTS_224(T), CLEAVE_OUTS(T, 112)
#define CLEAVE_OUTS_256(T) CLEAVE_OUTS_240(T), CLEAVE_OUTS(T, 120)

// One instruction: its shape and types, the registers of its accumulators, what follows the predicate, its operands.
#define CLEAVE_WGMMA_ASM(SHAPE, N, T, A, B, S, TAIL, ...)                                             \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " S ", 0;"                                           \
               "wgmma.mma_async.sync.aligned." SHAPE " {" CLEAVE_REGS_##N "}, " A ", " B ", p" TAIL ";}" \
               : CLEAVE_OUTS_##N(T) : "l"(a), "l"(b), "r"(accumulate) __VA_ARGS__)

// 16-bit operands may be contiguous along K or across it; the others are contiguous along K.
// A, B, S: operand numbers of the descriptors and of `accumulate`; TA, TB: of the transpose flags.
#define CLEAVE_WGMMA_16BIT(N, A, B, S, TA, TB, TYPE)                                               \
  template <int TransposeA, int TransposeB>                                                        \
  struct Wgmma<DType::TYPE, DType::TYPE, N, TransposeA, TransposeB> {                              \
    CLEAVE_DEVICE static void mma(float (&d)[N / 2], uint64_t a, uint64_t b, uint32_t accumulate) { \
      CLEAVE_WGMMA_ASM("m64n" #N "k16.f32." #TYPE "." #TYPE, N, "+f", A, B, S, ", 1, 1, " TA ", " TB,    \
                       , "n"(TransposeA), "n"(TransposeB));                                        \
    }                                                                                              \
  };
#define CLEAVE_WGMMA_K_MAJOR(N, A, B, S, SHAPE, TYPE_A, TYPE_B, SUM, T, TAIL)                         \
  template <>                                                                                      \
  struct Wgmma<DType::TYPE_A, DType::TYPE_B, N, 0, 0> {                                            \
    CLEAVE_DEVICE static void mma(SUM (&d)[N / 2], uint64_t a, uint64_t b, uint32_t accumulate) {  \
      CLEAVE_WGMMA_ASM(SHAPE, N, T, A, B, S, TAIL);                                                   \
    }                                                                                              \
  };
#define CLEAVE_WGMMA_FP8_PAIR(N, A, B, S, TYPE_A, TYPE_B)                                          \
  CLEAVE_WGMMA_K_MAJOR(N, A, B, S, "m64n" #N "k32.f32." #TYPE_A "." #TYPE_B, TYPE_A, TYPE_B, float, "+f", ", 1, 1")

#define CLEAVE_WGMMA_FP8(N, A, B, S)                                                               \
  CLEAVE_WGMMA_FP8_PAIR(N, A, B, S, e4m3, e4m3)                                                    \
  CLEAVE_WGMMA_FP8_PAIR(N, A, B, S, e4m3, e5m2)                                                    \
  CLEAVE_WGMMA_FP8_PAIR(N, A, B, S, e5m2, e4m3)                                                    \
  CLEAVE_WGMMA_FP8_PAIR(N, A, B, S, e5m2, e5m2)

#define CLEAVE_WGMMA(N, A, B, S, TA, TB)                                                           \
  CLEAVE_WGMMA_16BIT(N, A, B, S, TA, TB, bf16)                                                     \
  CLEAVE_WGMMA_16BIT(N, A, B, S, TA, TB, f16)                                                      \
  CLEAVE_WGMMA_K_MAJOR(N, A, B, S, "m64n" #N "k8.f32.tf32.tf32", f32, f32, float, "+f", ", 1, 1")        \
  CLEAVE_WGMMA_FP8(N, A, B, S)                                                                     \
  CLEAVE_WGMMA_K_MAJOR(N, A, B, S, "m64n" #N "k32.s32.s8.s8", i8, i8, int32_t, "+r", "")
CLEAVE_WGMMA(16, "%8", "%9", "%10", "%11", "%12")
CLEAVE_WGMMA(32, "%16", "%17", "%18", "%19", "%20")
CLEAVE_WGMMA(48, "%24", "%25", "%26", "%27", "%28")
CLEAVE_WGMMA(64, "%32", "%33", "%34", "%35", "%36")
CLEAVE_WGMMA(80, "%40", "%41", "%42", "%43", "%44")
CLEAVE_WGMMA(96, "%48", "%49", "%50", "%51", "%52")
CLEAVE_WGMMA(112, "%56", "%57", "%58", "%59", "%60")
CLEAVE_WGMMA(128, "%64", "%65", "%66", "%67", "%68")
CLEAVE_WGMMA(144, "%72", "%73", "%74", "%75", "%76")
CLEAVE_WGMMA_FP8(152, "%76", "%77", "%78")
CLEAVE_WGMMA(160, "%80", "%81", "%82", "%83", "%84")
CLEAVE_WGMMA(176, "%88", "%89", "%90", "%91", "%92")
CLEAVE_WGMMA(192, "%96", "%97", "%98", "%99", "%100")
CLEAVE_WGMMA(208, "%104", "%105", "%106", "%107", "%108")
CLEAVE_WGMMA(224, "%112", "%113", "%114", "%115", "%116")
CLEAVE_WGMMA(240, "%120", "%121", "%122", "%123", "%124")
CLEAVE_WGMMA(256, "%128", "%129", "%130", "%131", "%132")

#undef CLEAVE_WGMMA
#undef CLEAVE_WGMMA_FP8
#undef CLEAVE_WGMMA_FP8_PAIR
#undef CLEAVE_WGMMA_K_MAJOR
#undef CLEAVE_WGMMA_16BIT
#undef CLEAVE_WGMMA_ASM

// clang-format on

}  // namespace cleave::ptx
