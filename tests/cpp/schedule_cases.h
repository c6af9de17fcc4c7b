// Schedules of every mode and grouping, drawn at random, and what TileScheduler makes of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "cleave/schedule/schedule.h"
#include "launch/residue_classes.h"

namespace cleave::schedule_cases {  // other tests have a Case, too

/// A schedule, and its groups or classes if it has any.
struct Case {
  ScheduleShape shape;
  std::vector<GroupEntry> groups;  // and the entry of all of them
  std::vector<ConvClass> classes;

  bool grouped(Grouping along) const { return shape.grouping == along; }
  uint32_t steps(uint32_t batch) const { return groups[batch].steps.size(); }
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
    return grouped(Grouping::none) ? GroupRange{} : groups[coord.batch].range;
  }
  uint32_t tiles() const {
    if (grouped(Grouping::m)) return groups.back().steps.end * shape.tiles_n;
    if (grouped(Grouping::n)) return groups.back().steps.end * shape.tiles_m;
    return shape.tiles_m * shape.tiles_n * shape.batches;
  }
  template <Grouping grouping>
  Table<grouping> table() const {
    if constexpr (grouping == Grouping::classes) {
      return {classes.data(), uint32_t(classes.size())};
    } else {
      return {groups.data(), shape.batches};
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

inline Schedules walks(const Case& x, uint32_t workers) {
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

inline Schedules walks(const Case& x) {
  return walks(x, x.shape.clusters);
}

inline constexpr Grouping kGroupings[] = {Grouping::none, Grouping::m, Grouping::n, Grouping::k, Grouping::classes};

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
    uint32_t steps = 0;
    for (uint32_t g = 0; g < x.shape.batches; ++g) {
      const uint32_t sizes[] = {0, 1, number(2, kStep + 1), number(0, 5 * kStep)};
      const uint32_t size = g == giant ? number(0, 60 * kStep) : sizes[number(0, 3)];
      position += number(0, 3);
      const GroupRange range{position, position + size};
      const uint32_t before = steps;
      x.groups.push_back({range, {before, steps += group_steps(x.shape.grouping, range, kStep)}});
      position += size;
    }
    x.groups.push_back(GroupTable::entry_of_all(number(0, x.shape.batches - 1), steps));  // a walk may begin anywhere
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

inline std::string text(const Case& x) {
  const ScheduleShape& s = x.shape;
  std::vector<uint32_t> steps;
  for (const GroupEntry& group : x.groups) steps.push_back(group.steps.end);
  return testing::PrintToString(std::vector<uint32_t>{uint32_t(s.mode), uint32_t(s.grouping), s.tiles_m, s.tiles_n,
                                                      s.batches, s.k_blocks, s.slices, s.clusters, s.stream_tiles,
                                                      s.band_width, uint32_t(s.bands_along_m)}) +
         " groups' last steps " + testing::PrintToString(steps) + ", " + std::to_string(x.classes.size()) + " classes";
}

}  // namespace cleave::schedule_cases
