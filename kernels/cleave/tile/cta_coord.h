// A CTA's place: its cluster, its rank there, and so its tiles and slices.
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/epilogue_params.h"
#include "cleave/config/gemm_params.h"
#include "cleave/config/output.h"
#include "cleave/config/reductions.h"
#include "cleave/config/smem_plan.h"
#include "cleave/ptx/cluster.h"
#include "cleave/ptx/sync.h"
#include "cleave/schedule/group_table.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// A CTA's tile scheduler. A work tile without k blocks (a slice of a short group of K, a tile of a class without
/// taps) gets one past the end: that one loads as zeros, and no role needs a case of its own. Where a launch adds to D,
/// tiles of empty groups of K add nothing and are passed over; a cluster that splits K has no tile to go on to.
template <GemmConfig C>
struct CtaScheduler : TileScheduler<C.schedule.split, C.schedule.grouping, C.schedule.in_turn> {
  using Base = TileScheduler<C.schedule.split, C.schedule.grouping, C.schedule.in_turn>;
  static constexpr bool kGroupsOfK = C.schedule.grouping == Grouping::k;

  CLEAVE_DEVICE CtaScheduler(const GemmParams& p, uint32_t cluster, uint32_t clusters, uint32_t rank,
                             const Table<C.schedule.grouping>& table)
      : Base(p.schedule, cluster, clusters, rank, table), epilogue_(p.epilogue) {}

  CLEAVE_DEVICE bool next(WorkTile& work) {
    bool more = Base::next(work);
    if constexpr (kGroupsOfK && C.cluster.k == 1 && C.epilogue.has_c) {
      while (more && work.range.size() == 0 && adds_to_d(C.epilogue, epilogue_)) more = Base::next(work);
    }
    if constexpr ((kGroupsOfK && is_sliced(C.schedule.split)) || C.schedule.grouping == Grouping::classes)
      work.k_count = max_of(work.k_count, 1u);
    return more;
  }

 private:
  const EpilogueParams& epilogue_;
};

/// A CTA's place in the launch.
template <GemmConfig C>
struct CtaCoord {
  uint32_t rank = cluster_size(C) > 1 ? ptx::cluster_rank() : 0;
  uint32_t share_rank = rank % sharers(C);  // among the CTAs that share loads
  uint32_t k_rank = rank / sharers(C);      // which of the cluster's slices this CTA has
  uint32_t cluster = blockIdx.x / cluster_size(C);
  uint32_t clusters = gridDim.x / cluster_size(C);
  Table<C.schedule.grouping> table;

  /// By all threads of the CTA, which may read the table after their next barrier. Warp `builder` builds it, once an
  /// earlier kernel, which may have written the groups' bounds, is done; other warps have other things to do meanwhile.
  CLEAVE_DEVICE void find_table(const Params<C>& p, uint8_t* shared, uint32_t builder) {
    if constexpr (C.schedule.grouping == Grouping::classes) {
      table = {p.classes, p.class_count};
    } else if constexpr (C.schedule.grouping != Grouping::none) {
      if (threadIdx.x / 32 == builder) ptx::grid_dependency_wait();
      table = build_group_table<C.schedule.group_capacity>(p.groups, C.schedule.grouping, group_step(C),
                                                           shared + smem_plan(C).group_table, builder,
                                                           {cluster, p.schedule.tiles_across});
    }
  }

  /// The first row of the CTA's tile: of the matrices, not of the group.
  CLEAVE_DEVICE uint32_t first_row(const TileCoord& coord) const {
    const uint32_t tile = coord.m * C.cluster.multicast_m + (C.cluster.multicast_m > 1 ? share_rank : 0);
    return tile * output_rows(C) + (C.schedule.grouping == Grouping::m ? coord.range.begin : 0);
  }
  CLEAVE_DEVICE uint32_t first_column(const TileCoord& coord) const {
    const uint32_t tile = coord.n * C.cluster.multicast_n + (C.cluster.multicast_n > 1 ? share_rank : 0);
    return tile * output_columns(C) + (C.schedule.grouping == Grouping::n ? coord.range.begin : 0);
  }
  CLEAVE_DEVICE Tile<C> tile(const Params<C>& p, const Fragment<C>& fragment, const TileCoord& coord) const {
    const ConvClass* conv_class = nullptr;
    const FusedClasses* columns = nullptr;
    if constexpr (C.conv.kind != Conv::none) {
      conv_class = p.classes + coord.conv_class;
      columns = &p.columns;
    }
    // The Hopper kernel is never given an empty K, but groups of K may be empty. Knowing it takes registers, which pays
    // for vector scales only: block scales are 0 there (scale_loader.h).
    const bool empty = C.schedule.grouping == Grouping::k
                           ? C.epilogue.scaling == Scaling::vector && coord.range.size() == 0
                           : !has_tma(C.family) && p.size.k == 0;
    uint32_t to_units = 0;
    if constexpr (reduces_groups(C))
      to_units = table.entries[coord.batch].steps.begin * group_step(C) - coord.range.begin;
    return {fragment, first_row(coord), first_column(coord), coord.batch, coord.range.end, conv_class, columns,
            empty,    to_units};
  }
  /// The tile's number among those of all CTAs.
  CLEAVE_DEVICE uint32_t linear_tile(uint32_t tile) const { return tile * sharers(C) + share_rank; }

  CLEAVE_DEVICE CtaScheduler<C> scheduler(const GemmParams& p) const { return {p, cluster, clusters, k_rank, table}; }
};

}  // namespace cleave
