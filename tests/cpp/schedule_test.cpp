// Walk and the reduction units: every (tile, k block) exactly once, and waits that always end.

#include "cleave/schedule/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace cleave {
namespace {

struct Step {
  uint32_t worker;
  WorkUnit unit;
};

template <SplitKMode mode>
std::vector<std::vector<WorkUnit>> walks(const Schedule& schedule, uint32_t workers) {
  std::vector<std::vector<WorkUnit>> all(workers);
  for (uint32_t worker = 0; worker < workers; ++worker) {
    for (uint32_t rank = 0; rank < schedule.ranks; ++rank) {
      Walk<mode> walk(schedule, worker, workers, rank);
      for (WorkUnit unit; walk.next(unit);) all[worker].push_back(unit);
    }
  }
  return all;
}

std::vector<std::vector<WorkUnit>> walks(const ScheduleShape& shape, uint32_t workers) {
  const Schedule schedule = make_schedule(shape);
  switch (shape.mode) {
    case SplitKMode::serial:
      return walks<SplitKMode::serial>(schedule, workers);
    case SplitKMode::parallel:
      return walks<SplitKMode::parallel>(schedule, workers);
    case SplitKMode::cluster:
      return walks<SplitKMode::cluster>(schedule, workers);
    case SplitKMode::stream_k:
      return walks<SplitKMode::stream_k>(schedule, workers);
    default:
      return walks<SplitKMode::none>(schedule, workers);
  }
}

class Shapes {
 public:
  explicit Shapes(uint32_t seed) : random_(seed) {}

  uint32_t number(uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random_);
  }

  ScheduleShape draw(SplitKMode mode) {
    ScheduleShape shape;
    shape.mode = mode;
    shape.tiles_m = number(0, 9);
    shape.tiles_n = number(0, 9);
    shape.batches = number(0, 3) == 0 ? number(0, 3) : 1;
    const uint32_t kinds[] = {0, 1, 2, number(3, 9), number(10, 70)};
    shape.k_blocks = kinds[number(0, 4)];
    if (mode == SplitKMode::parallel) shape.ranks = 1u << number(0, 2);
    shape.slices = shape.ranks * number(1, 17);
    shape.workers = number(0, 3) == 0 ? 132 : number(1, 148);
    shape.stream_tiles = number(0, shape.tiles_m * shape.tiles_n * shape.batches);
    shape.reduce_chunks = number(1, 9);
    shape.band_width = number(0, 10);
    shape.bands_along_m = number(0, 1) == 1;
    return shape;
  }

 private:
  std::mt19937 random_;
};

std::string text(const ScheduleShape& s) {
  return testing::PrintToString(std::vector<uint32_t>{
      uint32_t(s.mode), s.tiles_m, s.tiles_n, s.batches, s.k_blocks, s.slices, s.workers,
      s.stream_tiles, s.reduce_chunks, s.band_width, uint32_t(s.bands_along_m)});
}

constexpr SplitKMode kModes[] = {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel,
                                 SplitKMode::cluster, SplitKMode::stream_k};

TEST(Schedule, EveryTileAndKBlockExactlyOnce) {
  Shapes shapes(1);
  for (int round = 0; round < 1500; ++round) {
    for (const SplitKMode mode : kModes) {
      const ScheduleShape shape = shapes.draw(mode);
      SCOPED_TRACE(text(shape));
      const uint32_t tiles = shape.tiles_m * shape.tiles_n * shape.batches;
      const bool sliced = make_schedule(shape).slices > 1;
      std::vector<std::vector<int>> visits(tiles, std::vector<int>(shape.k_blocks));
      std::vector<uint32_t> units(tiles);
      for (const auto& walk : walks(shape, shape.workers)) {
        for (const WorkUnit& unit : walk) {
          ASSERT_LT(unit.tile, tiles);
          ASSERT_LT(unit.m, shape.tiles_m);
          ASSERT_LT(unit.n, shape.tiles_n);
          ASSERT_LT(unit.batch, shape.batches);
          ++units[unit.tile];
          for (uint32_t i = 0; i < unit.k_count; ++i) {
            ASSERT_LT(unit.k_block(i), shape.k_blocks);
            ++visits[unit.tile][unit.k_block(i)];
          }
        }
      }
      for (uint32_t tile = 0; tile < tiles; ++tile) {
        // Also where there is no k block, somebody must write D.
        if (sliced) {
          ASSERT_EQ(units[tile], shape.slices);
        } else if (mode != SplitKMode::stream_k || shape.k_blocks == 0) {
          ASSERT_EQ(units[tile], 1u);
        } else {
          ASSERT_GE(units[tile], 1u);
        }
        for (const int count : visits[tile]) ASSERT_EQ(count, 1);
      }
    }
  }
}

TEST(Schedule, SlicesAreEvenAndInterleave) {
  Shapes shapes(2);
  for (int round = 0; round < 500; ++round) {
    for (const SplitKMode mode : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster}) {
      const ScheduleShape shape = shapes.draw(mode);
      SCOPED_TRACE(text(shape));
      std::map<std::pair<uint32_t, uint32_t>, WorkUnit> by_slice;
      for (const auto& walk : walks(shape, shape.workers)) {
        for (const WorkUnit& unit : walk) by_slice[{unit.tile, unit.slice}] = unit;
      }
      uint32_t k = 0;
      for (const auto& [key, unit] : by_slice) {
        if (key.second == 0) k = 0;
        ASSERT_EQ(unit.k_first, key.second);  // slices interleave
        ASSERT_EQ(unit.k_step, shape.slices);
        k += unit.k_count;
        ASSERT_GE(unit.k_count, shape.k_blocks / shape.slices);
        ASSERT_LE(unit.k_count, shape.k_blocks / shape.slices + 1);
        if (key.second + 1 == shape.slices) {
          ASSERT_EQ(k, shape.k_blocks);
        }
      }
    }
  }
}

// All workers run at once, as blocks on a GPU, each in its own order. A unit of slice s may add its
// sums only after slice s - 1 of its tile did; until then its worker is stuck.
TEST(Schedule, SerialTurnstileNeverDeadlocks) {
  Shapes shapes(3);
  for (int round = 0; round < 500; ++round) {
    const ScheduleShape shape = shapes.draw(SplitKMode::serial);
    SCOPED_TRACE(text(shape));
    const auto all = walks(shape, shape.workers);
    size_t left = 0;
    for (const auto& walk : all) left += walk.size();
    std::vector<uint32_t> turn(shape.tiles_m * shape.tiles_n * shape.batches);
    std::vector<size_t> done(all.size());
    while (left > 0) {
      const size_t before = left;
      const uint32_t first = shapes.number(0, shape.workers - 1);
      for (uint32_t i = 0; i < shape.workers; ++i) {
        const uint32_t worker = (first + i) % shape.workers;
        if (done[worker] == all[worker].size()) continue;
        const WorkUnit& unit = all[worker][done[worker]];
        if (turn[unit.tile] != unit.slice) continue;
        ++turn[unit.tile];
        ++done[worker];
        --left;
      }
      ASSERT_LT(left, before) << "every worker waits";
    }
    for (const uint32_t slices : turn) ASSERT_EQ(slices, shape.slices);
  }
}

// Units of one range of K are neighbours in the unit order, so that they share it in L2. What lets
// workers run one after the other: no unit waits for one of a higher number.
TEST(Schedule, SerialUnitsWaitForLowerNumbersOnly) {
  Shapes shapes(4);
  for (int round = 0; round < 200; ++round) {
    const ScheduleShape shape = shapes.draw(SplitKMode::serial);
    SCOPED_TRACE(text(shape));
    const uint32_t units = make_schedule(shape).units();
    const auto all = walks(shape, max_of(units, 1u));
    std::vector<uint32_t> turn(shape.tiles_m * shape.tiles_n * shape.batches);
    for (uint32_t worker = 0; worker < units; ++worker) {
      ASSERT_EQ(all[worker].size(), 1u);
      ASSERT_EQ(worker, all[worker][0].slice * turn.size() + all[worker][0].tile);
      ASSERT_EQ(all[worker][0].slice, turn[all[worker][0].tile]++);
    }
  }
}

TEST(Schedule, StreamKOwnersCollectExactlyTheRestOfTheirTile) {
  Shapes shapes(5);
  for (int round = 0; round < 3000; ++round) {
    const ScheduleShape shape = shapes.draw(SplitKMode::stream_k);
    SCOPED_TRACE(text(shape));
    const auto all = walks(shape, shape.workers);

    std::map<uint32_t, std::vector<Step>> contributions;  // by tile, in worker order
    for (uint32_t worker = 0; worker < shape.workers; ++worker) {
      for (size_t i = 0; i < all[worker].size(); ++i) {
        if (all[worker][i].slice == 0) continue;
        // One slot per worker is enough, and a contribution is made before its worker can wait.
        ASSERT_EQ(i, 0u);
        contributions[all[worker][i].tile].push_back({worker, all[worker][i]});
      }
    }
    for (uint32_t worker = 0; worker < shape.workers; ++worker) {
      for (const WorkUnit& unit : all[worker]) {
        if (unit.slice != 0) {
          ASSERT_EQ(unit.contributors, 0u);
          continue;
        }
        const auto found = contributions.find(unit.tile);
        const size_t others = found == contributions.end() ? 0 : found->second.size();
        ASSERT_EQ(unit.contributors, others);
        ASSERT_EQ(unit.k_first, 0u);
        uint32_t k = unit.k_count;
        for (size_t i = 0; i < others; ++i) {
          const Step& step = found->second[i];
          ASSERT_EQ(step.worker, worker + 1 + i);
          ASSERT_EQ(step.unit.k_first, k);
          ASSERT_EQ(step.unit.k_step, 1u);
          ASSERT_GT(step.unit.k_count, 0u);
          k += step.unit.k_count;
        }
        ASSERT_EQ(k, shape.k_blocks);
      }
    }
  }
}

TEST(Schedule, StreamKWorkIsEven) {
  ScheduleShape shape;
  shape.mode = SplitKMode::stream_k;
  shape.tiles_m = 5;
  shape.tiles_n = 7;
  shape.k_blocks = 37;
  shape.workers = 16;
  shape.stream_tiles = 35;
  for (const auto& walk : walks(shape, shape.workers)) {
    uint32_t blocks = 0;
    for (const WorkUnit& unit : walk) blocks += unit.k_count;
    EXPECT_GE(blocks, 35 * 37 / 16u);
    EXPECT_LE(blocks, 35 * 37 / 16u + 1);
  }
}

TEST(Schedule, ReductionsCoverEveryTileAndChunkOnce) {
  Shapes shapes(6);
  for (int round = 0; round < 500; ++round) {
    const ScheduleShape shape = shapes.draw(SplitKMode::parallel);
    SCOPED_TRACE(text(shape));
    const Schedule schedule = make_schedule(shape);
    std::map<uint32_t, WorkUnit> places;
    for (const auto& walk : walks(shape, shape.workers)) {
      for (const WorkUnit& unit : walk) places[unit.tile] = unit;
    }
    std::map<std::pair<uint32_t, uint32_t>, int> visits;
    for (uint32_t i = 0; i < schedule.tiles * schedule.reduce_chunks; ++i) {
      const ReduceUnit unit = reduce_unit(schedule, i);
      ASSERT_LT(unit.tile, schedule.tiles);
      ASSERT_LT(unit.chunk, shape.reduce_chunks);
      ASSERT_EQ(unit.m, places.at(unit.tile).m);
      ASSERT_EQ(unit.n, places.at(unit.tile).n);
      ASSERT_EQ(unit.batch, places.at(unit.tile).batch);
      ++visits[{unit.tile, unit.chunk}];
    }
    ASSERT_EQ(visits.size(), size_t(schedule.tiles) * shape.reduce_chunks);
  }
}

TEST(Shares, DifferByAtMostOneLargerFirst) {
  for (uint32_t total = 0; total < 60; ++total) {
    for (uint32_t takers = 1; takers < 20; ++takers) {
      const Shares shares(total, takers);
      EXPECT_EQ(shares.begin(0), 0u);
      EXPECT_EQ(shares.begin(takers), total);
      uint32_t last = total;
      for (uint32_t i = 0; i < takers; ++i) {
        const uint32_t share = shares.begin(i + 1) - shares.begin(i);
        EXPECT_LE(share, last);
        EXPECT_GE(share, total / takers);
        EXPECT_LE(share, total / takers + 1);
        last = share;
      }
    }
  }
}

// A planner may make a schedule at compile time.
constexpr Schedule kConstant =
    make_schedule({.mode = SplitKMode::serial, .tiles_m = 3, .slices = 4});
static_assert(kConstant.units() == 12);

}  // namespace
}  // namespace cleave
