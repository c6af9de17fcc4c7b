// TileScheduler: every (group or class, tile, k block) exactly once, parts of tiles that whoever comes last can
// add up, and waits that always end.

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "schedule_cases.h"

namespace cleave {
namespace {

using namespace schedule_cases;

constexpr SplitKMode kModes[] = {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster,
                                 SplitKMode::stream_k};

void expect_everything_once(const Case& x) {
  SCOPED_TRACE(text(x));
  const ScheduleShape& shape = x.shape;
  const bool sliced = make_schedule(shape).slices > 1;
  std::vector<std::vector<int>> visits(x.tiles());
  std::vector<uint32_t> units(x.tiles());
  std::map<std::array<uint32_t, 4>, uint32_t> places;
  for (const auto& walk : walks(x)) {
    for (const WorkTile& work : walk) {
      ASSERT_LT(work.tile, x.tiles());
      ASSERT_LT(work.batch, shape.batches);
      ASSERT_LT(work.m, x.tiles_m(work));
      ASSERT_LT(work.n, x.tiles_n(work));
      const auto place = places.insert({{work.batch, work.conv_class, work.m, work.n}, work.tile});
      ASSERT_EQ(place.first->second, work.tile) << "two tiles in one place";
      ASSERT_EQ(work.range.begin, x.range(work).begin);
      ASSERT_EQ(work.range.end, x.range(work).end);
      ++units[work.tile];
      visits[work.tile].resize(x.k_blocks(work));
      for (uint32_t i = 0; i < work.k_count; ++i) {
        ASSERT_LT(work.k_block(i), x.k_blocks(work));
        ++visits[work.tile][work.k_block(i)];
      }
    }
  }
  for (uint32_t tile = 0; tile < x.tiles(); ++tile) {
    // Also where there is no k block, somebody must write D.
    if (sliced) {
      ASSERT_EQ(units[tile], shape.slices);
    } else if (shape.mode != SplitKMode::stream_k || visits[tile].empty()) {
      ASSERT_EQ(units[tile], 1u);
    } else {
      ASSERT_GE(units[tile], 1u);
    }
    for (const int count : visits[tile]) ASSERT_EQ(count, 1);
  }
  ASSERT_EQ(places.size(), x.tiles());
}

TEST(Schedule, EveryTileAndKBlockExactlyOnce) {
  Cases cases(1);
  for (int round = 0; round < 600; ++round) {
    for (const SplitKMode mode : kModes) {
      for (const Case& x : cases.draw(mode)) {
        expect_everything_once(x);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Schedule, SlicesAreEvenAndInterleave) {
  Cases cases(2);
  for (int round = 0; round < 500; ++round) {
    for (const SplitKMode mode : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster}) {
      for (const Case& x : cases.draw(mode)) {
        SCOPED_TRACE(text(x));
        std::map<std::pair<uint32_t, uint32_t>, WorkTile> by_slice;
        for (const auto& walk : walks(x)) {
          for (const WorkTile& work : walk) by_slice[{work.tile, work.slice}] = work;
        }
        uint32_t k = 0;
        for (const auto& [key, work] : by_slice) {
          if (key.second == 0) k = 0;
          ASSERT_EQ(work.k_first, key.second);  // slices interleave
          ASSERT_EQ(work.k_step, x.shape.slices);
          k += work.k_count;
          ASSERT_GE(work.k_count, x.k_blocks(work) / x.shape.slices);
          ASSERT_LE(work.k_count, x.k_blocks(work) / x.shape.slices + 1);
          if (key.second + 1 == x.shape.slices) {
            ASSERT_EQ(k, x.k_blocks(work));
          }
        }
      }
    }
  }
}

// All workers run at once, as blocks on a GPU, each in its own order. A work of slice s may add its
// sums only after slice s - 1 of its tile did; until then its worker is stuck.
TEST(Schedule, SerialTurnstileNeverDeadlocks) {
  Cases cases(3);
  for (int round = 0; round < 500; ++round) {
    for (const Case& x : cases.draw(SplitKMode::serial)) {
      SCOPED_TRACE(text(x));
      const uint32_t workers = x.shape.clusters;
      const auto all = walks(x);
      size_t left = 0;
      for (const auto& walk : all) left += walk.size();
      std::vector<uint32_t> turn(x.tiles());
      std::vector<size_t> done(all.size());
      while (left > 0) {
        const size_t before = left;
        const uint32_t first = cases.number(0, workers - 1);
        for (uint32_t i = 0; i < workers; ++i) {
          const uint32_t worker = (first + i) % workers;
          if (done[worker] == all[worker].size()) continue;
          const WorkTile& work = all[worker][done[worker]];
          if (turn[work.tile] != work.slice) continue;
          ++turn[work.tile];
          ++done[worker];
          --left;
        }
        ASSERT_LT(left, before) << "every worker waits";
      }
      for (const uint32_t slices : turn) ASSERT_EQ(slices, x.shape.slices);
    }
  }
}

// Units of one range of K are neighbours in the work order, so that they share it in L2. What lets
// workers run one after the other: no work waits for one of a higher number.
TEST(Schedule, SerialUnitsWaitForLowerNumbersOnly) {
  Cases cases(4);
  for (int round = 0; round < 200; ++round) {
    for (const Case& x : cases.draw(SplitKMode::serial)) {
      SCOPED_TRACE(text(x));
      const uint32_t units = x.tiles() * make_schedule(x.shape).clusters_per_tile;
      const auto all = walks(x, max_of(units, 1u));
      std::vector<uint32_t> turn(x.tiles());
      for (uint32_t worker = 0; worker < units; ++worker) {
        ASSERT_EQ(all[worker].size(), 1u);
        ASSERT_EQ(worker, all[worker][0].slice * turn.size() + all[worker][0].tile);
        ASSERT_EQ(all[worker][0].slice, turn[all[worker][0].tile]++);
      }
    }
  }
}

// A CTA that has nothing else to do may stay and help; one that has must go on.
TEST(Schedule, WalksKnowWhenTheyAreFinished) {
  Cases cases(9);
  for (int round = 0; round < 100; ++round) {
    const Case x = cases.draw(SplitKMode::parallel, Grouping::none);
    const Schedule schedule = make_schedule(x.shape);
    for (uint32_t worker = 0; worker < x.shape.clusters; ++worker) {
      TileScheduler<SplitKMode::parallel> walk(schedule, worker, x.shape.clusters);
      WorkTile work;
      for (bool more = true; more;) {
        const bool finished = walk.finished();
        more = walk.next(work);
        ASSERT_EQ(more, !finished);
      }
    }
  }
}

template <Grouping grouping>
void expect_found_in_any_order(Cases& cases) {
  const Case x = cases.draw(SplitKMode::none, grouping);
  SCOPED_TRACE(text(x));
  const Schedule schedule = make_schedule(x.shape);
  TileFinder<grouping> finder(schedule, x.table<grouping>());
  for (int i = 0; i < 50 && x.tiles() > 0; ++i) {
    TileCoord found, fresh;
    const uint32_t tile = cases.number(0, x.tiles() - 1);
    finder.find(tile, found);
    TileFinder<grouping>(schedule, x.table<grouping>()).find(tile, fresh);
    ASSERT_EQ(found.batch, fresh.batch);
    ASSERT_EQ(found.conv_class, fresh.conv_class);
    ASSERT_EQ(found.m, fresh.m);
    ASSERT_EQ(found.n, fresh.n);
  }
}

// Consumers may ask for any tile at any time, though walks mostly go forward.
TEST(Schedule, TilesAreFoundInAnyOrder) {
  Cases cases(8);
  for (int round = 0; round < 200; ++round) {
    expect_found_in_any_order<Grouping::m>(cases);
    expect_found_in_any_order<Grouping::classes>(cases);
    if (HasFatalFailure()) return;
  }
}

TEST(EvenPartition, DifferByAtMostOneLargerFirst) {
  for (uint32_t total = 0; total < 60; ++total) {
    for (uint32_t takers = 1; takers < 20; ++takers) {
      const EvenPartition shares(total, takers);
      EXPECT_EQ(shares.begin(0), 0u);
      EXPECT_EQ(shares.begin(takers), total);
      uint32_t last = total;
      for (uint32_t i = 0; i < takers; ++i) {
        const uint32_t share = shares.begin(i + 1) - shares.begin(i);
        EXPECT_LE(share, last);
        EXPECT_GE(share, total / takers);
        EXPECT_LE(share, total / takers + 1);
        last = share;
        for (uint32_t at = shares.begin(i); at < shares.begin(i + 1); ++at) EXPECT_EQ(shares.part(at), i);
      }
    }
  }
}

// A planner may make a schedule at compile time.
constexpr Schedule kConstant = make_schedule({.mode = SplitKMode::serial, .tiles_m = 3, .slices = 4});
static_assert(kConstant.tiles * kConstant.clusters_per_tile == 12);

}  // namespace
}  // namespace cleave
