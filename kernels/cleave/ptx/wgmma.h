// Warpgroup matrix multiply-accumulate (sm_90a): D[64, N] += A[64, 32 bytes] * B[32 bytes, N],
// operands in shared memory, float32 accumulators in registers.
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

/// One wgmma instruction. TransposeA/B: 1 if the operand is MN-major (16-bit types only).
/// `accumulate` 0 overwrites the accumulators.
template <DType Type, uint32_t N, int TransposeA, int TransposeB>
struct Wgmma;

// The accumulators' register list of each N extends the list of N - 8, so each width is one line
// below.
#define CLEAVE_REGS_8 "%0, %1, %2, %3"
#define CLEAVE_REGS_16 \
  CLEAVE_REGS_8        \
      ", "             \
      "%4, %5, %6, %7"
#define CLEAVE_REGS_24 \
  CLEAVE_REGS_16       \
      ", "             \
      "%8, %9, %10, %11"
#define CLEAVE_REGS_32 \
  CLEAVE_REGS_24       \
      ", "             \
      "%12, %13, %14, %15"
#define CLEAVE_REGS_40 \
  CLEAVE_REGS_32       \
      ", "             \
      "%16, %17, %18, %19"
#define CLEAVE_REGS_48 \
  CLEAVE_REGS_40       \
      ", "             \
      "%20, %21, %22, %23"
#define CLEAVE_REGS_56 \
  CLEAVE_REGS_48       \
      ", "             \
      "%24, %25, %26, %27"
#define CLEAVE_REGS_64 \
  CLEAVE_REGS_56       \
      ", "             \
      "%28, %29, %30, %31"
#define CLEAVE_REGS_72 \
  CLEAVE_REGS_64       \
      ", "             \
      "%32, %33, %34, %35"
#define CLEAVE_REGS_80 \
  CLEAVE_REGS_72       \
      ", "             \
      "%36, %37, %38, %39"
#define CLEAVE_REGS_88 \
  CLEAVE_REGS_80       \
      ", "             \
      "%40, %41, %42, %43"
#define CLEAVE_REGS_96 \
  CLEAVE_REGS_88       \
      ", "             \
      "%44, %45, %46, %47"
#define CLEAVE_REGS_104 \
  CLEAVE_REGS_96        \
      ", "              \
      "%48, %49, %50, %51"
#define CLEAVE_REGS_112 \
  CLEAVE_REGS_104       \
      ", "              \
      "%52, %53, %54, %55"
#define CLEAVE_REGS_120 \
  CLEAVE_REGS_112       \
      ", "              \
      "%56, %57, %58, %59"
#define CLEAVE_REGS_128 \
  CLEAVE_REGS_120       \
      ", "              \
      "%60, %61, %62, %63"
#define CLEAVE_REGS_136 \
  CLEAVE_REGS_128       \
      ", "              \
      "%64, %65, %66, %67"
#define CLEAVE_REGS_144 \
  CLEAVE_REGS_136       \
      ", "              \
      "%68, %69, %70, %71"
#define CLEAVE_REGS_152 \
  CLEAVE_REGS_144       \
      ", "              \
      "%72, %73, %74, %75"
#define CLEAVE_REGS_160 \
  CLEAVE_REGS_152       \
      ", "              \
      "%76, %77, %78, %79"
#define CLEAVE_REGS_168 \
  CLEAVE_REGS_160       \
      ", "              \
      "%80, %81, %82, %83"
#define CLEAVE_REGS_176 \
  CLEAVE_REGS_168       \
      ", "              \
      "%84, %85, %86, %87"
#define CLEAVE_REGS_184 \
  CLEAVE_REGS_176       \
      ", "              \
      "%88, %89, %90, %91"
#define CLEAVE_REGS_192 \
  CLEAVE_REGS_184       \
      ", "              \
      "%92, %93, %94, %95"
#define CLEAVE_REGS_200 \
  CLEAVE_REGS_192       \
      ", "              \
      "%96, %97, %98, %99"
#define CLEAVE_REGS_208 \
  CLEAVE_REGS_200       \
      ", "              \
      "%100, %101, %102, %103"
#define CLEAVE_REGS_216 \
  CLEAVE_REGS_208       \
      ", "              \
      "%104, %105, %106, %107"
#define CLEAVE_REGS_224 \
  CLEAVE_REGS_216       \
      ", "              \
      "%108, %109, %110, %111"
#define CLEAVE_REGS_232 \
  CLEAVE_REGS_224       \
      ", "              \
      "%112, %113, %114, %115"
#define CLEAVE_REGS_240 \
  CLEAVE_REGS_232       \
      ", "              \
      "%116, %117, %118, %119"
#define CLEAVE_REGS_248 \
  CLEAVE_REGS_240       \
      ", "              \
      "%120, %121, %122, %123"
#define CLEAVE_REGS_256 \
  CLEAVE_REGS_248       \
      ", "              \
      "%124, %125, %126, %127"
#define CLEAVE_OUTS_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define CLEAVE_OUTS_16 CLEAVE_OUTS_8, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define CLEAVE_OUTS_24 CLEAVE_OUTS_16, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define CLEAVE_OUTS_32 CLEAVE_OUTS_24, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define CLEAVE_OUTS_40 CLEAVE_OUTS_32, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define CLEAVE_OUTS_48 CLEAVE_OUTS_40, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define CLEAVE_OUTS_56 CLEAVE_OUTS_48, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define CLEAVE_OUTS_64 CLEAVE_OUTS_56, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define CLEAVE_OUTS_72 CLEAVE_OUTS_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define CLEAVE_OUTS_80 CLEAVE_OUTS_72, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define CLEAVE_OUTS_88 CLEAVE_OUTS_80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define CLEAVE_OUTS_96 CLEAVE_OUTS_88, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define CLEAVE_OUTS_104 CLEAVE_OUTS_96, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define CLEAVE_OUTS_112 CLEAVE_OUTS_104, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define CLEAVE_OUTS_120 CLEAVE_OUTS_112, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define CLEAVE_OUTS_128 CLEAVE_OUTS_120, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define CLEAVE_OUTS_136 CLEAVE_OUTS_128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define CLEAVE_OUTS_144 CLEAVE_OUTS_136, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define CLEAVE_OUTS_152 CLEAVE_OUTS_144, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define CLEAVE_OUTS_160 CLEAVE_OUTS_152, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define CLEAVE_OUTS_168 CLEAVE_OUTS_160, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define CLEAVE_OUTS_176 CLEAVE_OUTS_168, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define CLEAVE_OUTS_184 CLEAVE_OUTS_176, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define CLEAVE_OUTS_192 CLEAVE_OUTS_184, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define CLEAVE_OUTS_200 CLEAVE_OUTS_192, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define CLEAVE_OUTS_208 CLEAVE_OUTS_200, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define CLEAVE_OUTS_216 CLEAVE_OUTS_208, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define CLEAVE_OUTS_224 CLEAVE_OUTS_216, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define CLEAVE_OUTS_232 CLEAVE_OUTS_224, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define CLEAVE_OUTS_240 CLEAVE_OUTS_232, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define CLEAVE_OUTS_248 CLEAVE_OUTS_240, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define CLEAVE_OUTS_256 CLEAVE_OUTS_248, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

// A, B, S: operand numbers of the descriptors and of `accumulate`; TA, TB: of the transpose flags.
#define CLEAVE_WGMMA(N, A, B, S, TA, TB)                                                        \
  template <int TransposeA, int TransposeB>                                                     \
  struct Wgmma<DType::bf16, N, TransposeA, TransposeB> {                                        \
    CLEAVE_DEVICE static void mma(float (&d)[N / 2], uint64_t a, uint64_t b,                    \
                                  uint32_t accumulate) {                                        \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " S                                           \
                   ", 0;"                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" CLEAVE_REGS_##N \
                   "}, " A ", " B ", p, 1, 1, " TA ", " TB ";}"                                 \
                   : CLEAVE_OUTS_##N                                                            \
                   : "l"(a), "l"(b), "r"(accumulate), "n"(TransposeA), "n"(TransposeB));        \
    }                                                                                           \
  };                                                                                            \
  template <int TransposeA, int TransposeB>                                                     \
  struct Wgmma<DType::f16, N, TransposeA, TransposeB> {                                         \
    CLEAVE_DEVICE static void mma(float (&d)[N / 2], uint64_t a, uint64_t b,                    \
                                  uint32_t accumulate) {                                        \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " S                                           \
                   ", 0;"                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" CLEAVE_REGS_##N   \
                   "}, " A ", " B ", p, 1, 1, " TA ", " TB ";}"                                 \
                   : CLEAVE_OUTS_##N                                                            \
                   : "l"(a), "l"(b), "r"(accumulate), "n"(TransposeA), "n"(TransposeB));        \
    }                                                                                           \
  };                                                                                            \
  template <>                                                                                   \
  struct Wgmma<DType::f32, N, 0, 0> {                                                           \
    CLEAVE_DEVICE static void mma(float (&d)[N / 2], uint64_t a, uint64_t b,                    \
                                  uint32_t accumulate) {                                        \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " S                                           \
                   ", 0;"                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" CLEAVE_REGS_##N  \
                   "}, " A ", " B ", p, 1, 1;}"                                                 \
                   : CLEAVE_OUTS_##N                                                            \
                   : "l"(a), "l"(b), "r"(accumulate));                                          \
    }                                                                                           \
  };

CLEAVE_WGMMA(8, "%4", "%5", "%6", "%7", "%8")
CLEAVE_WGMMA(16, "%8", "%9", "%10", "%11", "%12")
CLEAVE_WGMMA(24, "%12", "%13", "%14", "%15", "%16")
CLEAVE_WGMMA(32, "%16", "%17", "%18", "%19", "%20")
CLEAVE_WGMMA(40, "%20", "%21", "%22", "%23", "%24")
CLEAVE_WGMMA(48, "%24", "%25", "%26", "%27", "%28")
CLEAVE_WGMMA(56, "%28", "%29", "%30", "%31", "%32")
CLEAVE_WGMMA(64, "%32", "%33", "%34", "%35", "%36")
CLEAVE_WGMMA(72, "%36", "%37", "%38", "%39", "%40")
CLEAVE_WGMMA(80, "%40", "%41", "%42", "%43", "%44")
CLEAVE_WGMMA(88, "%44", "%45", "%46", "%47", "%48")
CLEAVE_WGMMA(96, "%48", "%49", "%50", "%51", "%52")
CLEAVE_WGMMA(104, "%52", "%53", "%54", "%55", "%56")
CLEAVE_WGMMA(112, "%56", "%57", "%58", "%59", "%60")
CLEAVE_WGMMA(120, "%60", "%61", "%62", "%63", "%64")
CLEAVE_WGMMA(128, "%64", "%65", "%66", "%67", "%68")
CLEAVE_WGMMA(136, "%68", "%69", "%70", "%71", "%72")
CLEAVE_WGMMA(144, "%72", "%73", "%74", "%75", "%76")
CLEAVE_WGMMA(152, "%76", "%77", "%78", "%79", "%80")
CLEAVE_WGMMA(160, "%80", "%81", "%82", "%83", "%84")
CLEAVE_WGMMA(168, "%84", "%85", "%86", "%87", "%88")
CLEAVE_WGMMA(176, "%88", "%89", "%90", "%91", "%92")
CLEAVE_WGMMA(184, "%92", "%93", "%94", "%95", "%96")
CLEAVE_WGMMA(192, "%96", "%97", "%98", "%99", "%100")
CLEAVE_WGMMA(200, "%100", "%101", "%102", "%103", "%104")
CLEAVE_WGMMA(208, "%104", "%105", "%106", "%107", "%108")
CLEAVE_WGMMA(216, "%108", "%109", "%110", "%111", "%112")
CLEAVE_WGMMA(224, "%112", "%113", "%114", "%115", "%116")
CLEAVE_WGMMA(232, "%116", "%117", "%118", "%119", "%120")
CLEAVE_WGMMA(240, "%120", "%121", "%122", "%123", "%124")
CLEAVE_WGMMA(248, "%124", "%125", "%126", "%127", "%128")
CLEAVE_WGMMA(256, "%128", "%129", "%130", "%131", "%132")

#undef CLEAVE_WGMMA

}  // namespace cleave::ptx
