// The portable kernel's loads: one k block of one operand into one stage, by every thread of the
// block, with any alignment and any edge. The layout in shared memory is TMA's
// (memory/descriptor.h), so both kernels share the swizzle.
#pragma once

#include "cleave/kernel/gemm_params.h"
#include "cleave/memory/smem_plan.h"
#include "cleave/memory/swizzle.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/shared.h"

namespace cleave {

/// `rows`: extent of the operand's M (or N); `depth`: of K. Elements outside become zeros.
template <GemmConfig C, Major M, uint32_t TileRows, uint32_t Bytes>
CLEAVE_DEVICE void copy_operand(const OperandParams& operand, uint32_t stage, uint32_t row0,
                                uint32_t k0, uint32_t rows, uint32_t depth, uint32_t batch,
                                uint32_t thread) {
  constexpr uint32_t kElement = size_of(C.a);
  constexpr uint32_t kAtom = atom_elements(C.a);
  constexpr uint32_t kPieces = TileRows * C.tile_k * kElement / Bytes;
  constexpr uint32_t kPerLine = 128 / Bytes;
  // `line`: the index that is strided in memory; `across`: the contiguous one.
  constexpr uint32_t kLines = M == Major::k ? TileRows : C.tile_k;
  const uint32_t line_end = M == Major::k ? rows : depth, across_end = M == Major::k ? depth : rows;
  const uint32_t line0 = M == Major::k ? row0 : k0, across0 = M == Major::k ? k0 : row0;
  const char* const base =
      static_cast<const char*>(operand.data) + int64_t(batch) * operand.batch_stride * kElement;
  // Narrow copies are many: unrolled in full they would cost more registers than they hide latency.
#pragma unroll(Bytes == 16 ? kPieces / math_threads(C) : 4)
  for (uint32_t i = 0; i < kPieces; i += math_threads(C)) {
    const uint32_t piece = i + thread;
    if (kPieces % math_threads(C) != 0 && piece >= kPieces) break;
    const uint32_t part = piece / (kLines * kPerLine);
    const uint32_t line = piece / kPerLine % kLines, byte = piece % kPerLine * Bytes;
    const uint32_t to = stage + part * kLines * 128 + swizzle(line, byte);
    const uint32_t across = across0 + part * kAtom + byte / kElement;
    const bool inside = line0 + line < line_end && across < across_end;
    const char* const from =
        inside ? base + (int64_t(line0 + line) * operand.stride + across) * kElement : base;
    if constexpr (Bytes == 1) {
      ptx::store_shared_8(to, inside ? *reinterpret_cast<const uint8_t*>(from) : uint8_t(0));
    } else if constexpr (Bytes == 2) {
      // Of 8-bit elements the pair's second may lie outside.
      const bool both = across_end - across >= 2 / kElement;
      const uint16_t pair = !inside ? uint16_t(0)
                            : both  ? *reinterpret_cast<const uint16_t*>(from)
                                    : *reinterpret_cast<const uint8_t*>(from);
      ptx::store_shared_16(to, pair);
    } else {
      ptx::copy_async<Bytes>(to, from,
                             inside ? min_of((across_end - across) * kElement, Bytes) : 0);
    }
  }
}

}  // namespace cleave
