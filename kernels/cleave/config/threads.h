// A CTA's threads, their registers and what each has of a tile's sums.
#pragma once

#include "cleave/config/direct_at_once.h"
#include "cleave/config/direct_columns.h"
#include "cleave/config/direct_sweep.h"
#include "cleave/config/direct_work.h"
#include "cleave/config/loads.h"
#include "cleave/config/staged_c.h"
#include "cleave/core/either.h"

namespace cleave {

/// Threads that hold accumulators.
CLEAVE_HD constexpr uint32_t math_threads(const GemmConfig& c) {
  return has_wgmma(c.family) ? (c.warps.pingpong ? 1 : c.warps.consumers) * 128 : c.warps.m * c.warps.n * 32;
}

/// Threads that copy operands, vector by vector.
CLEAVE_HD constexpr uint32_t copy_threads(const GemmConfig& c) {
  return has_tma(c.family) ? 128 : math_threads(c);
}

/// Threads of a CTA. Those of the streamed kernel all multiply, and math_threads() of them make sums of the parts.
CLEAVE_HD constexpr uint32_t cta_threads(const GemmConfig& c) {
  if (c.family == KernelFamily::direct)
    return c.direct.method == DirectMethod::sweep ? kSweepCtaThreads : kDirectThreads;
  if (c.family == KernelFamily::streamed) return c.warps.m * c.warps.k * 32;
  return has_tma(c.family) ? (c.warps.consumers + 1) * 128 : math_threads(c);
}

/// Registers of a thread of the Hopper kernel's producer warpgroup, once it has given up the rest.
CLEAVE_HD constexpr uint32_t producer_registers(const GemmConfig& c) {
  if (c.conv.gather) return copies_unaligned(c) ? 160 : 120;
  const bool copies = copies_beside(c) && !may_load_scale_lines(c);  // which holds no addresses (LeanScaleLoader)
  return copies || stages_c(c) || c.conv.kind != Conv::none ? 56 : 40;
}

/// And of its consumers: with several warpgroups of them the launch gives every thread an equal share,
/// and what the producer does not need is theirs.
CLEAVE_HD constexpr uint32_t consumer_registers(const GemmConfig& c) {
  if (c.warps.consumers == 1) return 255;
  const uint32_t equal = 65536 / cta_threads(c) / 8 * 8;
  return (equal + (equal - producer_registers(c)) / c.warps.consumers) / 8 * 8;
}

/// Accumulators that each math thread holds for one tile.
CLEAVE_HD constexpr uint32_t accumulators_per_thread(const GemmConfig& c) {
  return c.tile.m * c.tile.n / math_threads(c);
}

/// CTAs that an SM has registers for, at least.
CLEAVE_HD constexpr uint32_t resident_ctas(const GemmConfig& c) {
  if (c.direct.method == DirectMethod::spread) return 2;
  if (c.direct.method == DirectMethod::rows) {
    const uint32_t held = c.tile.m / 128 * (ceil_div(c.tile.k, 32u) * 8 + c.direct.vector * 4);  // pixels, and sums
    return held <= 40 ? 3 : 2;
  }
  if (c.direct.method == DirectMethod::columns) {
    const uint32_t registers = column_registers(c);
    if (c.conv.kind != Conv::wgrad && !has_column_ring(c) && registers <= 50) return 3;
    return registers <= kColumnRegisters ? 2 : 1;
  }
  if (c.direct.method == DirectMethod::at_once) return at_once_registers(c) <= 44 ? 3 : 2;
  if (c.conv.kind == Conv::wgrad && c.direct.method == DirectMethod::shift) return 2;
  if (c.direct.method == DirectMethod::lines) return 2;
  if (c.direct.method == DirectMethod::windows && c.conv.kind == Conv::wgrad) return c.tile.n <= 32 ? 2 : 1;
  if (c.direct.method == DirectMethod::sweep) return 1;
  if (c.direct.method == DirectMethod::pixels || c.conv.kind == Conv::wgrad) return c.direct.pixels > 0 ? 2 : 1;
  const bool has_classes = c.conv.kind == Conv::dgrad && c.direct.height.stride * c.direct.width.stride > 1;
  return accumulators_per_thread(c) <= 32 && !has_classes ? 3 : 2;
}

/// Whether a warpgroup multiplies two times 64 rows.
CLEAVE_HD constexpr bool has_two_waves(const GemmConfig& c) {
  return has_wgmma(c.family) && c.tile.m / (math_threads(c) / 128) > 64;
}

/// What the tensor cores add up.
template <GemmConfig C>
using Part = Either<C.operands.a == DType::i8, int32_t, float>;

/// The type of an accumulator, and of a partial sum in the workspace: 32 bits in any case.
template <GemmConfig C>
using Sum = Either<C.operands.a == DType::i8 && !C.scales.promote, int32_t, float>;

/// All of a thread's accumulators.
template <GemmConfig C>
using Sums = Sum<C>[accumulators_per_thread(C)];

}  // namespace cleave
