// The portable mainloop (sm_80 and later): a ring of cp.async stages, ldmatrix, mma.sync (of float32 in parts,
// parts.h, three times; of float32 as it is, fma.h instead). All threads load and multiply.
#pragma once

#include "cleave/config/loads.h"
#include "cleave/config/threads.h"
#include "cleave/mainloop/copy_loader.h"
#include "cleave/mainloop/fma.h"
#include "cleave/mainloop/parts.h"
#include "cleave/mainloop/promotion.h"
#include "cleave/mainloop/scale_loader.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/tile/fragment.h"

namespace cleave {

/// Registers of one operand for a 16-row (or 16-column) strip and one 32-byte step of K: four 8 x
/// (16 bytes) matrices, matrix i at rows strip + 8 * (i % 2) [RowsFirst] or 8 * (i / 2), and the
/// other bit of i choosing the half of the step.
template <GemmConfig C, Major M, bool RowsFirst>
CLEAVE_DEVICE void load_fragment(uint32_t stage, uint32_t strip, uint32_t step, uint32_t (&v)[4]) {
  constexpr uint32_t kElement = size_of(C.operands.a), kAtom = atom_elements(C.operands.a);
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t matrix = lane / 8;
  const uint32_t row8 = (RowsFirst ? matrix % 2 : matrix / 2) * 8, half = RowsFirst ? matrix / 2 : matrix % 2;
  if constexpr (M == Major::k) {
    ptx::ldmatrix<false>(stage + swizzle(strip + row8 + lane % 8, step * 32 + half * 16), v);
  } else if constexpr (kElement == 2) {
    const uint32_t row = strip + row8, k = step * 16 + half * 8 + lane % 8;
    ptx::ldmatrix<true>(stage + row / kAtom * C.tile.k * 128 + swizzle(k, row % kAtom * 2), v);
  } else {  // ldmatrix cannot transpose 32-bit or 8-bit elements
    constexpr uint32_t kPerRegister = 4 / kElement;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = strip + (RowsFirst ? i % 2 : i / 2) * 8 + lane / 4;
      const uint32_t k = (step * 8 + (RowsFirst ? i / 2 : i % 2) * 4 + lane % 4) * kPerRegister;
      const uint32_t part = stage + row / kAtom * C.tile.k * 128, across = row % kAtom * kElement;
      if constexpr (kElement == 4) {
        v[i] = ptx::load_shared_32(part + swizzle(k, across));
      } else {
        v[i] = 0;
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < 4; ++j) v[i] |= ptx::load_shared_8(part + swizzle(k + j, across)) << (8 * j);
      }
    }
  }
  if constexpr (C.operands.a == DType::f32 && C.operands.precision == Precision::tf32) {
    CLEAVE_UNROLL
    for (uint32_t& bits : v) bits = float_bits(round_to_tf32(bits_float(bits)));
  }
}

/// `Copier`: loads both operands (MatrixCopier, or GatherCopier of convolutions).
template <GemmConfig C, class Copier>
struct MmaMainloop {
  static constexpr SmemPlan kPlan = smem_plan(C);
  static constexpr uint32_t kSteps = C.tile.k * size_of(C.operands.a) / 32;
  static constexpr uint32_t kRowBlocks = Fragment<C>::kRows / 16, kColBlocks = Fragment<C>::kColBlocks;
  static_assert(C.tile.k == atom_elements(C.operands.a), "a k block is one 128-byte row");
  static_assert(kColBlocks % 2 == 0, "B's fragments come in pairs of column blocks");

  const Params<C>& p;
  uint32_t smem, thread;
  Copier copier;
  Promotion<C> promotion;

  CLEAVE_DEVICE MmaMainloop(const Params<C>& params, uint32_t shared, uint32_t math_thread)
      : p(params), smem(shared), thread(math_thread), copier(params, math_thread) {}

  /// sums = A @ B over the work tile's k blocks (zeros if it has none).
  CLEAVE_DEVICE void run(const WorkTile& work, const Tile<C>& tile, Sums<C>& sums) {
    CLEAVE_UNROLL
    for (Sum<C>& sum : sums) sum = 0;
    const uint32_t count = work.k_count;
    if constexpr (C.scales.promote) promotion.start(tile);
    ScaleLoader<C, math_threads(C)> scale_loader(p, thread);
    if constexpr (C.epilogue.scaling == Scaling::block) scale_loader.start(work, tile);
    copier.start(work, tile);
    const auto load = [&](uint32_t block, uint32_t stage) {
      copier.load(work, tile, work.k_block(block) * C.tile.k, smem + kPlan.a + stage * kPlan.a_stage,
                  smem + kPlan.b + stage * kPlan.b_stage);
      if constexpr (C.epilogue.scaling == Scaling::block)
        scale_loader.load(smem + kPlan.scales + stage * kPlan.scale_stage);
    };
    __syncthreads();  // the last work tile's readers are done with the stages
    CLEAVE_UNROLL
    for (uint32_t i = 0; i + 1 < C.tile.stages; ++i) {
      if (i < count) load(i, i);
      ptx::copy_async_commit();
    }
    for (uint32_t i = 0; i < count; ++i) {
      ptx::copy_async_wait<C.tile.stages - 2>();
      __syncthreads();
      const uint32_t ahead = i + C.tile.stages - 1;
      if (ahead < count) load(ahead, ahead % C.tile.stages);
      ptx::copy_async_commit();
      if constexpr (C.scales.promote) {
        Part<C> part[accumulators_per_thread(C)] = {};
        multiply(tile, i % C.tile.stages, part);
        const auto scales = promotion.load(smem + kPlan.scales + i % C.tile.stages * kPlan.scale_stage);
        CLEAVE_UNROLL
        for (uint32_t row = 0; row < kRowBlocks; ++row)
          promotion.add(part + row * kColBlocks * 4, sums + row * kColBlocks * 4, row, scales);
      } else {
        multiply(tile, i % C.tile.stages, sums);
      }
    }
    ptx::copy_async_wait<0>();
  }

 private:
  CLEAVE_DEVICE void multiply(const Tile<C>& tile, uint32_t stage, Part<C>* sums) {
    const uint32_t a = smem + kPlan.a + stage * kPlan.a_stage, b = smem + kPlan.b + stage * kPlan.b_stage;
    if constexpr (C.operands.precision == Precision::ieee) {
      multiply_ieee<C>(a, b, tile.fragment, sums);
    } else if constexpr (in_parts(C.operands.precision)) {
      multiply_in_parts(a, b, sums);
    } else {
      multiply_by_tensor_cores(a, b, sums);
    }
  }

  CLEAVE_DEVICE uint32_t first_row() const { return thread / 32 / C.warps.n * Fragment<C>::kRows; }
  CLEAVE_DEVICE uint32_t first_col() const { return thread / 32 % C.warps.n * Fragment<C>::kCols; }

  CLEAVE_DEVICE void multiply_by_tensor_cores(uint32_t a, uint32_t b, Part<C>* sums) {
    // Hopper's mma.sync has 8-bit floats converted first: unrolled, that takes too many registers.
#pragma unroll(is_fp8(C.operands.a) ? 1 : kSteps)
    for (uint32_t step = 0; step < kSteps; ++step) {
      uint32_t rows[kRowBlocks][4], cols[kColBlocks / 2][4];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowBlocks; ++i)
        load_fragment<C, C.operands.a_major, true>(a, first_row() + i * 16, step, rows[i]);
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kColBlocks / 2; ++j)
        load_fragment<C, C.operands.b_major, false>(b, first_col() + j * 16, step, cols[j]);
      multiply_fragments<C.operands.a, C.operands.b>(rows, cols, sums);
    }
  }

  CLEAVE_DEVICE void multiply_in_parts(uint32_t a, uint32_t b, Part<C>* sums) {
    constexpr Precision kPrecision = C.operands.precision;
    constexpr DType kPart = type_of_parts(kPrecision);
    constexpr uint32_t kLoads = loads_per_step(kPrecision);
    CLEAVE_UNROLL
    for (uint32_t step = 0; step < kSteps; step += kLoads) {
      FragmentParts<kPrecision, kRowBlocks> rows;
      FragmentParts<kPrecision, kColBlocks / 2> cols;
      uint32_t loaded[kLoads][4], alone = 0;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowBlocks; ++i) {
        CLEAVE_UNROLL
        for (uint32_t load = 0; load < kLoads; ++load)
          load_fragment<C, C.operands.a_major, true>(a, first_row() + i * 16, step + load, loaded[load]);
        alone |= rows.template split<true>(i, loaded);
      }
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kColBlocks / 2; ++j) {
        CLEAVE_UNROLL
        for (uint32_t load = 0; load < kLoads; ++load)
          load_fragment<C, C.operands.b_major, false>(b, first_col() + j * 16, step + load, loaded[load]);
        alone |= cols.template split<false>(j, loaded);
      }
      multiply_fragments<kPart, kPart>(rows.high, cols.high, sums);
      if (__any_sync(0xffffffffu, alone != 0)) {
        rows.drop_alone();
        cols.drop_alone();
      }
      multiply_fragments<kPart, kPart>(rows.low, cols.high, sums);
      multiply_fragments<kPart, kPart>(rows.high, cols.low, sums);
    }
  }

  template <DType TypeA, DType TypeB>
  CLEAVE_DEVICE static void multiply_fragments(const uint32_t (&rows)[kRowBlocks][4],
                                               const uint32_t (&cols)[kColBlocks / 2][4], Part<C>* sums) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kRowBlocks; ++i) {
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kColBlocks; ++j) {
        ptx::mma<TypeA, TypeB>(&sums[(i * kColBlocks + j) * 4], rows[i], cols[j / 2][j % 2 * 2],
                               cols[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
};

}  // namespace cleave
