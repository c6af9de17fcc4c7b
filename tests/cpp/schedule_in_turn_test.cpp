// One CTA that has all slices of a tile, or all ranks of a cluster, in turn.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "schedule_cases.h"

namespace cleave {
namespace {

using namespace schedule_cases;

template <Grouping grouping>
void expect_slices_in_turn(Cases& cases) {
  for (int round = 0; round < 100; ++round) {
    Case split = cases.draw(SplitKMode::parallel, grouping), whole = split, in_turn = split;
    split.shape.slices_per_cluster = 1;
    whole.shape.mode = in_turn.shape.mode = SplitKMode::none;
    in_turn.shape.in_turn = split.shape.slices;
    const Schedule schedule = make_schedule(in_turn.shape), of_split = make_schedule(split.shape);
    const Schedule unsplit = make_schedule(whole.shape);
    for (uint32_t worker = 0; worker < split.shape.clusters; ++worker) {
      const uint32_t workers = split.shape.clusters;
      TileScheduler<SplitKMode::none, grouping> tiles(unsplit, worker, workers, 0, whole.table<grouping>());
      TileScheduler<SplitKMode::none, grouping, true> walk(schedule, worker, workers, 0, in_turn.table<grouping>());
      WorkTile work;
      for (WorkTile tile; tiles.next(tile);) {
        for (uint32_t slice = 0; slice < split.shape.slices; ++slice) {
          ASSERT_TRUE(walk.next(work));
          ASSERT_EQ(std::tuple(work.tile, work.m, work.n, work.batch),
                    std::tuple(tile.tile, tile.m, tile.n, tile.batch));
          ASSERT_EQ(std::tuple(work.slice, work.k_first, work.k_step), std::tuple(slice, slice, split.shape.slices));
          ASSERT_EQ(work.k_count, of_split.slice_partition.count(slice));
        }
      }
      ASSERT_FALSE(walk.next(work));
    }
  }
}

// The slices that other modes deal to CTAs, all of a tile's by one, in the order in which they are added up.
TEST(Schedule, SlicesInTurnAreThoseOfASplit) {
  Cases cases(10);
  expect_slices_in_turn<Grouping::none>(cases);
  expect_slices_in_turn<Grouping::m>(cases);
  expect_slices_in_turn<Grouping::n>(cases);
}

template <Grouping grouping>
void expect_ranks_in_turn(Cases& cases) {
  for (int round = 0; round < 100; ++round) {
    const Case x = cases.draw(SplitKMode::parallel, grouping);
    const Schedule schedule = make_schedule(x.shape);
    for (uint32_t worker = 0; worker < x.shape.clusters; ++worker) {
      std::vector<TileScheduler<SplitKMode::parallel, grouping>> ranks;
      for (uint32_t rank = 0; rank < schedule.slices_per_cluster; ++rank)
        ranks.emplace_back(schedule, worker, x.shape.clusters, rank, x.table<grouping>());
      TileScheduler<SplitKMode::parallel, grouping, true> alone(schedule, worker, x.shape.clusters, 0,
                                                                x.table<grouping>());
      for (WorkTile work, turn; ranks[0].next(work);) {
        for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
          ASSERT_TRUE(rank == 0 || ranks[rank].next(work));
          ASSERT_TRUE(alone.next(turn));
          ASSERT_EQ(std::tuple(turn.tile, turn.m, turn.n, turn.batch, turn.slice),
                    std::tuple(work.tile, work.m, work.n, work.batch, work.slice));
          ASSERT_EQ(std::tuple(turn.k_first, turn.k_step, turn.k_count),
                    std::tuple(work.k_first, work.k_step, work.k_count));
        }
        ASSERT_EQ(alone.finished(), ranks[0].finished());
      }
      ASSERT_TRUE(alone.finished());
    }
  }
}

// The slices of a cluster's ranks, all of them by one CTA, in the order in which the cluster adds them up.
TEST(Schedule, SlicesInTurnAreThoseOfACluster) {
  Cases cases(11);
  expect_ranks_in_turn<Grouping::none>(cases);
  expect_ranks_in_turn<Grouping::m>(cases);
  expect_ranks_in_turn<Grouping::n>(cases);
}

}  // namespace
}  // namespace cleave
