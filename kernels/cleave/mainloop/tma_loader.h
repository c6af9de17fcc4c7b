// The producer's half of the sm_90a mainloop: one k block of A and B into one stage, from matrices
// (convolutions: im2col_loader.h).
//
// The boxes here and the tensor maps that the host makes agree through tma_box.h;
// memory/descriptor.h says how the tile then lies in shared memory. K's and rows outside the
// tensors arrive as zeros.
#pragma once

#include "cleave/config/cache_hints.h"
#include "cleave/config/clusters.h"
#include "cleave/config/gemm_params.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/config/tma_box.h"
#include "cleave/mainloop/group_maps.h"
#include "cleave/ptx/tma.h"

namespace cleave {

/// Who loads what of a shared tile.
struct Sharing {
  uint32_t share_rank;    // this CTA's among those that share loads: the part that it loads
  uint32_t first_sharer;  // the cluster rank of the first of them
};

/// The boxes of one operand's k block that CTA `share` of `Sharers` loads: `load(offset in the stage, x, y, piece)`.
/// `row0`: first row (m or n) of the tile; if Pieces is 2, of its left half in the first of the map's two matrices, of
/// its right half in the second. `Depth`: of K, where the stage lies within a k block.
template <GemmConfig C, Major M, uint32_t TileRows, uint32_t Sharers, uint32_t Pieces, uint32_t Depth, class Load>
CLEAVE_DEVICE void for_each_box(uint32_t share, uint32_t row0, uint32_t k0, const Load& load) {
  if constexpr (M == Major::k) {
    constexpr uint32_t kAtom = min_of(atom_elements(C.operands.a), Depth);
    constexpr uint32_t kRows = box_rows(M, TileRows, Depth, Sharers, Pieces);
    CLEAVE_UNROLL
    for (uint32_t part = 0; part < Depth / kAtom; ++part) {
      CLEAVE_UNROLL
      for (uint32_t piece = 0; piece < Pieces; ++piece) {
        const uint32_t row = share * kRows, line = part * TileRows + piece * (TileRows / Pieces) + row;
        load(line * kAtom * size_of(C.operands.a), k0 + part * kAtom, row0 + row, piece);
      }
    }
  } else {
    // Each loads as many strips as the others, and the first of them what is left.
    constexpr uint32_t kStrip = box_width(M, TileRows, C.operands.a), kLine = kStrip * size_of(C.operands.a);
    constexpr uint32_t kStrips = TileRows / kStrip, kPerPiece = kStrips / Pieces;
    constexpr uint32_t kParts = kStrips / Sharers, kLeft = kStrips % Sharers;
    const auto load_strip = [&](uint32_t strip) {
      load(strip * C.tile.k * kLine, row0 + strip % kPerPiece * kStrip, k0, strip / kPerPiece);
    };
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kParts; ++i) load_strip(share * kParts + i);
    if constexpr (kLeft > 0) {
      if (share < kLeft) load_strip(kStrips - kLeft + share);
    }
  }
}

/// One operand. `k0`: first k, of the work tile's group if K is grouped; `batch`: 0 where all batch entries share the
/// operand; `row0`, `Depth`: for_each_box.
template <GemmConfig C, Major M, uint32_t TileRows, uint32_t Sharers, uint32_t Pieces = 1, uint32_t Depth = C.tile.k>
CLEAVE_DEVICE void load_operand(const TensorMap* map, uint32_t stage, uint32_t barrier, uint32_t row0, uint32_t k0,
                                const WorkTile& work, uint32_t batch, Sharing sharing,
                                ptx::CacheHint hint = ptx::CacheHint::normal) {
  const uint32_t share = Sharers == 1 ? 0 : sharing.share_rank;
  const auto ctas = uint16_t(((1 << Sharers) - 1) << sharing.first_sharer);
  const auto load = [&](uint32_t offset, uint32_t x, uint32_t y, [[maybe_unused]] uint32_t piece) {
    if constexpr (loads_ragged(C.schedule.grouping, M)) {
      const RaggedLine at(work.range.end, work.range.begin + y);
      if constexpr (Sharers == 1) {
        ptx::tma_load(stage + offset, map, barrier, x, at.line, at.end, kRaggedExtent, hint);
      } else {
        ptx::tma_load_multicast(stage + offset, map, barrier, x, at.line, at.end, kRaggedExtent, ctas, hint);
      }
    } else if constexpr (Pieces == 2 && Sharers == 1) {
      ptx::tma_load(stage + offset, map, barrier, x, y, piece, batch, hint);
    } else if constexpr (Pieces == 2) {
      ptx::tma_load_multicast(stage + offset, map, barrier, x, y, piece, batch, ctas, hint);
    } else if constexpr (Sharers == 1) {
      ptx::tma_load(stage + offset, map, barrier, x, y, batch, hint);
    } else {
      ptx::tma_load_multicast(stage + offset, map, barrier, x, y, batch, ctas, hint);
    }
  };
  if constexpr (M == Major::k && C.schedule.grouping == Grouping::k && !C.schedule.apart) k0 += work.range.begin;
  for_each_box<C, M, TileRows, Sharers, Pieces, Depth>(share, row0, k0, load);
}

/// Bytes of a stage that tensor maps bring.
template <GemmConfig C>
CLEAVE_HD constexpr uint32_t tma_bytes() {
  constexpr SmemPlan kPlan = smem_plan(C);
  const bool im2col = C.conv.kind != Conv::none && (!C.conv.gather || C.conv.fuses_classes);
  return (has_map_a(C) || (im2col && gathers_a(C)) ? kPlan.a_stage : 0) +
         (has_map_b(C) || (im2col && gathers_b(C)) ? kPlan.b_stage : 0);
}

/// The strips in a stage of an operand with `rows` rows there: none of what is contiguous along K.
CLEAVE_HD constexpr uint32_t strips(Major major, uint32_t rows, DType type) {
  return major == Major::k ? 0 : rows / box_width(major, rows, type);
}

/// Whether the loop over k blocks is left to the compiler, which unrolls it, and then keeps the place of every strip in
/// a register. A warpgroup that has given up its registers has none for that beside two of these: many strips, shared
/// loads, slices that meet. (Three warpgroups with 96 sums each spill without: so the compiler said.)
template <GemmConfig C>
CLEAVE_HD constexpr bool unrolls_loads() {
  const uint32_t of_a = has_map_a(C) ? strips(C.operands.a_major, C.tile.m, C.operands.a) : 0;
  const uint32_t of_b = has_map_b(C) ? strips(C.operands.b_major, stage_columns(C), C.operands.b) : 0;
  const bool many = max_of(of_a, of_b) > (C.cluster.k > 1 ? 3 : 6);  // fewer where clusters add up slices
  const bool shared = sharers(C) > 1, meet = C.schedule.split != SplitKMode::none;
  const bool by_strips = C.conv.kind == Conv::none && of_a + of_b > 0;
  const bool spare = C.warps.consumers == 1 || (C.warps.consumers == 3 && accumulators_per_thread(C) >= 96);
  return !by_strips || spare || many + shared + meet < 2;
}

/// The operands of a work tile, but for what threads copy, k block by k block.
template <GemmConfig C>
class MatrixLoader {
 public:
  CLEAVE_DEVICE MatrixLoader(const GemmParams& p, Sharing sharing) : p_(p), sharing_(sharing), maps_(p) {}

  /// Before `start`, of groups that have maps of their own.
  CLEAVE_DEVICE void find_maps(const WorkTile& work, uint32_t scratch) { maps_.find(work, scratch); }

  /// `m0`, `n0`: the tile's first row and column.
  CLEAVE_DEVICE void start(const WorkTile& work, uint32_t m0, uint32_t n0) {
    m0_ = m0, n0_ = n0;
    choose_hints(work);
  }

  /// `OfA`, `OfB`: which of the operands.
  template <bool OfA = true, bool OfB = true>
  CLEAVE_DEVICE void load(const WorkTile& work, uint32_t block, uint32_t a, uint32_t b, uint32_t barrier) const {
    constexpr bool kByGroup = has_group_maps(C);
    const uint32_t k0 = block * C.tile.k + (kByGroup ? maps_.first_k(work) : 0);
    if constexpr (OfA && (kByGroup || has_map_a(C))) {
      load_operand<C, C.operands.a_major, C.tile.m, C.cluster.multicast_n>(
          kByGroup ? maps_.a(work) : &p_.map_a, a, barrier, m0_, k0, work, work.batch * p_.batched_a, sharing_,
          hint_a_);
    }
    if constexpr (OfB && (kByGroup || has_map_b(C))) {
      load_operand<C, C.operands.b_major, stage_columns(C), C.cluster.multicast_m, gated(C) ? 2 : 1>(
          kByGroup ? maps_.b(work) : &p_.map_b, b, barrier, n0_, k0, work, work.batch * p_.batched_b, sharing_,
          hint_b_);
    }
  }

 private:
  CLEAVE_DEVICE void choose_hints(const WorkTile& work) {
    LeavesFirst first;
    if constexpr (C.schedule.grouping == Grouping::none) {
      first = p_.leaves_first;
    } else if constexpr (C.schedule.grouping != Grouping::k) {
      // Weight gradients have many tiles, and their walk leaves the producer no register.
      const uint32_t in_group = work.range.end - work.range.begin;
      const bool of_rows = C.schedule.grouping == Grouping::m;
      first = leaves_first(C, of_rows ? in_group : p_.size.m, of_rows ? p_.size.n : in_group);
    }
    hint_a_ = first.a ? ptx::CacheHint::evict_first : ptx::CacheHint::normal;
    hint_b_ = first.b ? ptx::CacheHint::evict_first : ptx::CacheHint::normal;
  }

  const GemmParams& p_;
  Sharing sharing_;
  GroupMaps<C> maps_;
  uint32_t m0_ = 0, n0_ = 0;
  ptx::CacheHint hint_a_ = ptx::CacheHint::normal, hint_b_ = ptx::CacheHint::normal;
};

}  // namespace cleave
