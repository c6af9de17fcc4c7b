// Stream-K: whose the parts of a tile are, when tiles are cut, and that the work is even.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "schedule_cases.h"

namespace cleave {
namespace {

using namespace schedule_cases;

struct Step {
  uint32_t worker;
  WorkTile work;
};

void expect_parts_of_successive_workers(const Case& x) {
  SCOPED_TRACE(text(x));
  const auto all = walks(x);
  std::map<uint32_t, std::vector<Step>> parts;  // by tile, in worker order
  std::set<uint32_t> holds_first;
  for (uint32_t worker = 0; worker < x.shape.clusters; ++worker) {
    for (size_t i = 0; i < all[worker].size(); ++i) {
      const WorkTile& work = all[worker][i];
      parts[work.tile].push_back({worker, work});
      if (work.parts == 1) continue;
      // Two partials per worker are enough: one of a tile's first part, one of another's rest.
      if (work.slice == 0) {
        ASSERT_TRUE(holds_first.insert(worker).second);
      } else {
        ASSERT_EQ(i, 0u);
      }
    }
  }
  for (const auto& [tile, steps] : parts) {
    uint32_t k = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      const WorkTile& work = steps[i].work;
      ASSERT_EQ(work.parts, steps.size());
      ASSERT_EQ(work.slice, i);
      ASSERT_EQ(steps[i].worker, steps[0].worker + i);
      ASSERT_EQ(work.k_first, k);
      ASSERT_EQ(work.k_step, 1u);
      if (steps.size() > 1) {
        ASSERT_GT(work.k_count, 0u);
      }
      k += work.k_count;
    }
    ASSERT_EQ(k, x.k_blocks(steps[0].work));
  }
}

bool cuts_tail(const Case& x) {
  return x.shape.grouping == Grouping::m || x.shape.grouping == Grouping::n;
}

TEST(Schedule, StreamKPartsOfATileLieInSuccessiveWorkers) {
  Cases cases(5);
  for (int round = 0; round < 1000; ++round) {
    for (const Case& x : cases.draw(SplitKMode::stream_k)) {
      if (cuts_tail(x)) continue;
      expect_parts_of_successive_workers(x);
      if (HasFatalFailure()) return;
    }
  }
}

// Where M or N is grouped, whole waves come first; then every worker has at most one part of a tile, and successive
// workers those of one tile.
TEST(Schedule, StreamKCutsTheLastWaveOfGroups) {
  Cases cases(11);
  int cut = 0;
  for (int round = 0; round < 1000; ++round) {
    for (const Grouping grouping : {Grouping::m, Grouping::n}) {
      const Case x = cases.draw(SplitKMode::stream_k, grouping);
      SCOPED_TRACE(text(x));
      const uint32_t workers = x.shape.clusters, waves = x.tiles() / workers, tail = x.tiles() % workers;
      const uint32_t parts = tail_parts(tail, workers, x.shape.k_blocks);
      const auto all = walks(x);
      cut += parts > 1;
      for (uint32_t worker = 0; worker < workers; ++worker) {
        ASSERT_EQ(all[worker].size(), waves + (worker < tail * parts));
        for (uint32_t i = 0; i < all[worker].size(); ++i) {
          const WorkTile& work = all[worker][i];
          const bool whole = i < waves;
          ASSERT_EQ(work.tile, whole ? i * workers + worker : waves * workers + worker / parts);
          ASSERT_EQ(work.parts, whole ? 1 : parts);
          ASSERT_EQ(work.slice, whole ? 0 : worker % parts);
          ASSERT_EQ(work.k_first, work.slice);
          ASSERT_EQ(work.k_step, work.parts);
          ASSERT_LE(work.k_count, ceil_div(x.shape.k_blocks, work.parts));
        }
      }
    }
  }
  ASSERT_GT(cut, 100);
}

// An incomplete wave is as short as its parts, of which each is worth adding up.
TEST(Schedule, StreamKCutsAsOftenAsClustersIdle) {
  EXPECT_EQ(tail_parts(0, 132, 64), 1u);
  EXPECT_EQ(tail_parts(28, 132, 224), 4u);
  EXPECT_EQ(tail_parts(67, 132, 224), 1u);
  EXPECT_EQ(tail_parts(66, 132, 224), 2u);
  EXPECT_EQ(tail_parts(1, 132, 224), 8u);
  EXPECT_EQ(tail_parts(1, 132, 17), 2u);
  EXPECT_EQ(tail_parts(1, 132, 0), 1u);
}

uint32_t k_blocks_of(const std::vector<WorkTile>& walk) {
  uint32_t blocks = 0;
  for (const WorkTile& work : walk) blocks += work.k_count;
  return blocks;
}

TEST(Schedule, StreamKWorkIsEven) {
  const Case x{.shape = {.mode = SplitKMode::stream_k,
                         .tiles_m = 5,
                         .tiles_n = 7,
                         .k_blocks = 37,
                         .clusters = 16,
                         .stream_tiles = 35}};
  for (const auto& walk : walks(x)) {
    EXPECT_GE(k_blocks_of(walk), 35 * 37 / 16u);
    EXPECT_LE(k_blocks_of(walk), 35 * 37 / 16u + 1);
  }
}

// However groups of K are skewed, and however unequal classes are.
TEST(Schedule, StreamKWorkIsEvenWhereTilesAreNot) {
  Cases cases(7);
  for (int round = 0; round < 1000; ++round) {
    const bool classes = round % 2 == 1;
    const Case x = cases.draw(SplitKMode::stream_k, classes ? Grouping::classes : Grouping::k);
    if (classes && x.shape.batches != 1) continue;
    SCOPED_TRACE(text(x));
    const uint32_t blocks = classes ? x.shape.line : x.groups.back().steps.end * x.shape.tiles_m * x.shape.tiles_n;
    for (const auto& walk : walks(x)) {
      ASSERT_GE(k_blocks_of(walk), blocks / x.shape.clusters);
      ASSERT_LE(k_blocks_of(walk), blocks / x.shape.clusters + 1);
    }
  }
}

}  // namespace
}  // namespace cleave
