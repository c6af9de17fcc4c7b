// TileScheduler: every (group or class, tile, k block) exactly once, parts of tiles that whoever comes last can
// add up, and waits that always end.

#include "cleave/schedule/schedule.h"
#include "launch/residue_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cleave {
namespace {

struct Step {
  uint32_t worker;
  WorkTile work;
};

/// A schedule, and its groups or classes if it has any.
struct Case {
  ScheduleShape shape;
  std::vector<GroupRange> ranges;
  std::vector<uint32_t> before;
  std::vector<ConvClass> classes;

  bool grouped(Grouping along) const { return shape.grouping == along; }
  uint32_t steps(uint32_t batch) const { return before[batch + 1] - before[batch]; }
  // What the part of the problem has that a tile lies in: its batch entry, group or class.
  uint32_t tiles_m(const TileCoord& coord) const {
    if (grouped(Grouping::classes)) return classes[coord.conv_class].tiles;
    return grouped(Grouping::m) ? steps(coord.batch) : shape.tiles_m;
  }
  uint32_t tiles_n(const TileCoord& coord) const { return grouped(Grouping::n) ? steps(coord.batch) : shape.tiles_n; }
  uint32_t k_blocks(const TileCoord& coord) const {
    if (grouped(Grouping::classes)) return classes[coord.conv_class].k_blocks;
    return grouped(Grouping::k) ? steps(coord.batch) : shape.k_blocks;
  }
  GroupRange range(const TileCoord& coord) const {
    if (grouped(Grouping::classes)) return {0, classes[coord.conv_class].rows};
    return grouped(Grouping::none) ? GroupRange{} : ranges[coord.batch];
  }
  uint32_t tiles() const {
    if (grouped(Grouping::m)) return before.back() * shape.tiles_n;
    if (grouped(Grouping::n)) return before.back() * shape.tiles_m;
    return shape.tiles_m * shape.tiles_n * shape.batches;
  }
  template <Grouping grouping>
  Table<grouping> table() const {
    if constexpr (grouping == Grouping::classes) {
      return {classes.data(), uint32_t(classes.size())};
    } else {
      return {ranges.data(), before.data(), uint32_t(ranges.size())};
    }
  }
};

/// The units of every worker, in order.
using Schedules = std::vector<std::vector<WorkTile>>;

template <SplitKMode mode, Grouping grouping>
Schedules walks(const Case& x, uint32_t workers) {
  const Schedule schedule = make_schedule(x.shape);
  Schedules all(workers);
  for (uint32_t worker = 0; worker < workers; ++worker) {
    for (uint32_t rank = 0; rank < schedule.slices_per_cluster; ++rank) {
      TileScheduler<mode, grouping> walk(schedule, worker, workers, rank, x.table<grouping>());
      for (WorkTile work; walk.next(work);) all[worker].push_back(work);
    }
  }
  return all;
}

template <SplitKMode mode>
Schedules walks(const Case& x, uint32_t workers) {
  switch (x.shape.grouping) {
    case Grouping::m:
      return walks<mode, Grouping::m>(x, workers);
    case Grouping::n:
      return walks<mode, Grouping::n>(x, workers);
    case Grouping::k:
      return walks<mode, Grouping::k>(x, workers);
    case Grouping::classes:
      return walks<mode, Grouping::classes>(x, workers);
    default:
      return walks<mode, Grouping::none>(x, workers);
  }
}

Schedules walks(const Case& x, uint32_t workers) {
  switch (x.shape.mode) {
    case SplitKMode::serial:
      return walks<SplitKMode::serial>(x, workers);
    case SplitKMode::parallel:
      return walks<SplitKMode::parallel>(x, workers);
    case SplitKMode::cluster:
      return walks<SplitKMode::cluster>(x, workers);
    case SplitKMode::stream_k:
      return walks<SplitKMode::stream_k>(x, workers);
    default:
      return walks<SplitKMode::none>(x, workers);
  }
}

Schedules walks(const Case& x) {
  return walks(x, x.shape.clusters);
}

constexpr Grouping kGroupings[] = {Grouping::none, Grouping::m, Grouping::n, Grouping::k, Grouping::classes};

class Cases {
 public:
  explicit Cases(uint32_t seed) : random_(seed) {}

  uint32_t number(uint32_t low, uint32_t high) { return std::uniform_int_distribution<uint32_t>(low, high)(random_); }

  Case draw(SplitKMode mode, Grouping grouping) {
    Case x;
    ScheduleShape& shape = x.shape;
    shape.mode = mode;
    shape.grouping = grouping;
    shape.tiles_m = number(0, 9);
    shape.tiles_n = number(0, 9);
    shape.batches = number(0, 3) == 0 ? number(0, 3) : 1;
    const uint32_t kinds[] = {0, 1, 2, number(3, 9), number(10, 70)};
    shape.k_blocks = kinds[number(0, 4)];
    if (mode == SplitKMode::parallel) shape.slices_per_cluster = 1u << number(0, 2);
    shape.slices = shape.slices_per_cluster * number(1, 17);
    shape.clusters = number(0, 3) == 0 ? 132 : number(1, 148);
    shape.stream_tiles = number(0, shape.tiles_m * shape.tiles_n * shape.batches);
    if (grouping == Grouping::classes) {
      draw_classes(x);
    } else if (grouping != Grouping::none) {
      draw_groups(x);
    }
    shape.band_width = number(0, 10);
    shape.bands_along_m = number(0, 1) == 1;
    return x;
  }

  /// One of every grouping.
  std::vector<Case> draw(SplitKMode mode) {
    std::vector<Case> cases;
    for (const Grouping grouping : kGroupings) {
      cases.push_back(draw(mode, grouping));
    }
    return cases;
  }

 private:
  /// Empty ones, small ones and, sometimes, one that holds nearly everything.
  void draw_groups(Case& x) {
    constexpr uint32_t kStep = 10;
    x.shape.batches = number(0, 1) == 0 ? number(1, 5) : number(6, 40);
    const uint32_t giant = number(0, 2 * x.shape.batches);
    uint32_t position = 0;
    x.before.push_back(0);
    for (uint32_t g = 0; g < x.shape.batches; ++g) {
      const uint32_t sizes[] = {0, 1, number(2, kStep + 1), number(0, 5 * kStep)};
      const uint32_t size = g == giant ? number(0, 60 * kStep) : sizes[number(0, 3)];
      position += number(0, 3);
      x.ranges.push_back({position, position + size});
      position += size;
      x.before.push_back(x.before.back() + group_steps(x.shape.grouping, x.ranges.back(), kStep));
    }
  }

  /// Up to as many as there may be, some without taps.
  void draw_classes(Case& x) {
    constexpr uint32_t kTileM = 10;
    x.classes.resize(number(0, 9) > 0 ? number(0, 9) : kMostClasses);
    for (ConvClass& c : x.classes) {
      const uint32_t depths[] = {0, 1, number(2, 9), number(10, 70)};
      c.rows = number(1, 5 * kTileM);
      c.taps.size = depths[number(0, 3)];
    }
    std::ranges::stable_sort(x.classes, is_deeper);
    deal_tiles(x.classes.data(), uint32_t(x.classes.size()), kTileM, 1, 1, true);
    ScheduleShape& shape = x.shape;
    shape.tiles_m = shape.line = shape.stream_tiles = 0;
    for (const ConvClass& c : x.classes) {
      shape.tiles_m += c.tiles;
      if (shape.batches != 1 || c.k_blocks == 0) continue;  // the line runs through one entry's tiles
      shape.line += c.tiles * c.k_blocks * shape.tiles_n;
      shape.stream_tiles += c.tiles * shape.tiles_n;
    }
  }

  std::mt19937 random_;
};

std::string text(const Case& x) {
  const ScheduleShape& s = x.shape;
  return testing::PrintToString(std::vector<uint32_t>{uint32_t(s.mode), uint32_t(s.grouping), s.tiles_m, s.tiles_n,
                                                      s.batches, s.k_blocks, s.slices, s.clusters, s.stream_tiles,
                                                      s.band_width, uint32_t(s.bands_along_m)}) +
         " groups' steps " + testing::PrintToString(x.before) + ", " + std::to_string(x.classes.size()) + " classes";
}

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
    const uint32_t blocks = classes ? x.shape.line : x.before.back() * x.shape.tiles_m * x.shape.tiles_n;
    for (const auto& walk : walks(x)) {
      ASSERT_GE(k_blocks_of(walk), blocks / x.shape.clusters);
      ASSERT_LE(k_blocks_of(walk), blocks / x.shape.clusters + 1);
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
