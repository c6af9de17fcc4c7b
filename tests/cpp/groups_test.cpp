// Groups: what the arrays say, clamped to the dimension whatever they say, and the table of it.

#include "cpu/groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "group_case.h"

namespace cleave {
namespace {

GroupParams params_of(const GroupCase& x) {
  return {.offsets = x.offsets_data(),
          .sizes = x.sizes_data(),
          .bounds = x.layout.bounds,
          .wide = x.layout.wide,
          .count = x.count(),
          .spacing = uint32_t(x.layout.spacing),
          .extent = x.extent};
}

GemmProblem grouped(Grouping dimension, const GroupCase& x) {
  GemmProblem p{.m = 70, .n = 80, .k = 90, .batch = x.count(), .groups = x.layout};
  p.groups.dimension = dimension;
  (dimension == Grouping::m ? p.m : dimension == Grouping::n ? p.n : p.k) = x.extent;
  return p;
}

GemmArguments arguments_of(const GroupCase& x) {
  return {.group_offsets = x.offsets_data(), .group_sizes = x.sizes_data()};
}

TEST(Groups, BoundsSayWhatTheyMean) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    for (const GroupBounds bounds : kBounds) {
      const GroupCase x(random, bounds, uint32_t(random.number(1, 40)), uint32_t(random.number(1, 50)),
                        uint32_t(random.number(1, 16)));
      for (uint32_t g = 0; g < x.count(); ++g) {
        const GroupRange range = group_range(params_of(x), g);
        ASSERT_EQ(range.size(), x.ranges[g].size()) << int(bounds) << " group " << g;
        if (range.size() == 0) continue;
        ASSERT_EQ(range.begin, x.ranges[g].begin) << int(bounds) << " group " << g;
      }
    }
  }
}

TEST(Groups, ArraysAsTheirUsersKnowThem) {
  const int32_t ends[] = {2, 2, 7}, indptr[] = {1, 4, 4, 9}, starts[] = {5, 0}, sizes[] = {3, 4};
  const int32_t padded[] = {3, 130, 130}, counts[] = {2, 0, 5};
  const auto expect = [](const GroupParams& p, const std::vector<std::pair<int, int>>& ranges) {
    for (uint32_t g = 0; g < p.count; ++g) {
      const GroupRange range = group_range(p, g);
      EXPECT_EQ(std::pair(int(range.begin), int(range.end)), ranges[g]) << g;
    }
  };
  GroupParams p{.offsets = ends, .count = 3, .extent = 300};
  expect(p, {{0, 2}, {2, 2}, {2, 7}});
  p.bounds = GroupBounds::indptr;
  p.offsets = indptr;
  expect(p, {{1, 4}, {4, 4}, {4, 9}});
  p.bounds = GroupBounds::aligned_ends;
  p.spacing = 128;
  p.offsets = padded;
  expect(p, {{0, 3}, {128, 130}, {256, 256}});
  p.extent = 130;  // which is no place where a group may begin
  expect(p, {{0, 3}, {128, 130}, {0, 0}});
  p.extent = 300;
  p.bounds = GroupBounds::counts;
  p.spacing = 4;
  p.offsets = nullptr;
  p.sizes = counts;
  expect(p, {{0, 2}, {4, 4}, {8, 12}});  // no group reaches into the next one
  p.bounds = GroupBounds::starts;
  p.count = 2;
  p.offsets = starts;
  p.sizes = sizes;
  expect(p, {{5, 8}, {0, 4}});
}

/// A value of an array that nobody filled in.
int64_t garbage(Random& random, bool wide, int64_t extent) {
  using Narrow = std::numeric_limits<int32_t>;
  using Wide = std::numeric_limits<int64_t>;
  const int64_t narrow[] = {0,
                            1,
                            -1,
                            extent,
                            extent + 1,
                            random.number(-extent, 2 * extent),
                            Narrow::min(),
                            Narrow::max(),
                            random.number(Narrow::min(), Narrow::max())};
  const int64_t only_wide[] = {Wide::min(), Wide::max(), random.number(Wide::min(), Wide::max()), int64_t(1) << 32};
  return wide && random.number(0, 3) == 0 ? random.pick(only_wide) : random.pick(narrow);
}

/// As group_range, one case at a time, in 64 bits.
GroupRange plain_range(const GroupParams& p, uint32_t g) {
  const int64_t extent = p.extent, spacing = p.spacing;
  const auto within = [&](int64_t x) { return std::clamp<int64_t>(x, 0, extent); };
  const auto value = [&](const void* array, uint32_t i) {
    return within(p.wide ? static_cast<const int64_t*>(array)[i] : static_cast<const int32_t*>(array)[i]);
  };
  const auto offset = [&](uint32_t i) { return value(p.offsets, i); };
  const auto range = [](int64_t begin, int64_t end) { return GroupRange{uint32_t(begin), uint32_t(end)}; };
  switch (p.bounds) {
    case GroupBounds::ends: {
      const int64_t begin = g == 0 ? 0 : offset(g - 1);
      return range(begin, std::max(begin, offset(g)));
    }
    case GroupBounds::aligned_ends: {
      const int64_t end = g == 0 ? 0 : offset(g - 1), begin = (end + spacing - 1) / spacing * spacing;
      return begin >= extent ? GroupRange{} : range(begin, std::max(begin, offset(g)));
    }
    case GroupBounds::indptr:
      return range(offset(g), std::max(offset(g), offset(g + 1)));
    case GroupBounds::starts:
      return range(offset(g), offset(g) + std::min(value(p.sizes, g), extent - offset(g)));
    case GroupBounds::counts: {
      const int64_t begin = g * spacing;
      if (begin >= extent) return {};
      return range(begin, begin + std::min({value(p.sizes, g), extent - begin, spacing}));
    }
  }
  return {};
}

TEST(Groups, GarbageStaysInTheDimension) {
  Random random(2);
  for (int round = 0; round < 5000; ++round) {
    for (const GroupBounds bounds : kBounds) {
      const int64_t extents[] = {0, 1, random.number(2, 1000), (int64_t(1) << 31) - 1};
      const int64_t extent = random.pick(extents);
      const uint32_t count = uint32_t(random.number(1, 8));
      GroupParams p{.bounds = bounds,
                    .wide = random.coin(),
                    .count = count,
                    .spacing = random.coin() ? 128u : uint32_t(random.number(1, 1u << 31)),
                    .extent = uint32_t(extent)};
      GroupArray offsets, sizes;
      for (uint32_t i = 0; i <= count; ++i) offsets.push_back(garbage(random, p.wide, extent));
      for (uint32_t i = 0; i < count; ++i) sizes.push_back(garbage(random, p.wide, extent));
      if (bounds != GroupBounds::counts) p.offsets = offsets.data(p.wide);
      if (bounds == GroupBounds::counts || bounds == GroupBounds::starts) p.sizes = sizes.data(p.wide);
      for (uint32_t g = 0; g < count; ++g) {
        const GroupRange range = group_range(p, g), same = plain_range(p, g);
        ASSERT_EQ(range.begin, same.begin) << int(bounds) << " group " << g;
        ASSERT_EQ(range.end, same.end) << int(bounds) << " group " << g;
        ASSERT_LE(range.begin, range.end);
        ASSERT_LE(range.end, p.extent);
        if (is_spaced(bounds)) {  // TMA relies on it
          ASSERT_EQ(range.begin % p.spacing, 0u);
        }
      }
    }
  }
}

TEST(Groups, TableCountsTheStepsBeforeEachGroup) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    for (const GroupBounds bounds : kBounds) {
      for (const Grouping dimension : {Grouping::m, Grouping::n, Grouping::k}) {
        const GroupCase x(random, bounds, uint32_t(random.number(1, 40)), uint32_t(random.number(1, 50)), 4);
        const uint32_t step = uint32_t(random.number(1, 20));
        const GemmProblem p = grouped(dimension, x);
        const cpu::Groups groups(p, arguments_of(x), step);
        const GroupTable table = groups.table();
        ASSERT_EQ(table.count, x.count());
        uint32_t before = 0;
        for (uint32_t g = 0; g < x.count(); ++g) {
          ASSERT_EQ(table.entries[g].steps.begin, before);
          const uint32_t size = x.ranges[g].size();
          const uint32_t steps = dimension == Grouping::k && size == 0 ? 1 : (size + step - 1) / step;
          ASSERT_EQ(table.entries[g].steps.size(), steps) << "group " << g << " of " << size;
          before += steps;
        }
        ASSERT_EQ(table.steps(), before);
        ASSERT_LE(before, cpu::most_group_steps(p, step));
      }
    }
  }
}

TEST(Groups, TheMostStepsAreReached) {
  for (const Grouping dimension : {Grouping::m, Grouping::n, Grouping::k}) {
    for (const uint32_t extent : {0u, 1u, 5u, 6u, 29u, 30u, 31u, 100u}) {
      for (const uint32_t count : {1u, 2u, 6u, 7u, 40u}) {
        // One element in every group but the last; of K, none.
        GemmProblem p{.m = extent, .n = extent, .k = extent, .batch = count};
        p.groups.dimension = dimension;
        GroupArray ends;
        for (uint32_t g = 1; g < count; ++g) ends.push_back(dimension == Grouping::k ? 0 : min_of(g, extent));
        ends.push_back(extent);
        constexpr uint32_t kStep = 6;
        const cpu::Groups groups(p, {.group_offsets = ends.data(false)}, kStep);
        EXPECT_EQ(groups.table().steps(), cpu::most_group_steps(p, kStep)) << extent << " elements in " << count;
      }
    }
  }
}

TEST(Groups, OverlappingGroupsHaveNoMoreStepsThanOthers) {
  Random random(4);
  for (int round = 0; round < 1000; ++round) {
    for (const Grouping dimension : {Grouping::m, Grouping::n, Grouping::k}) {
      const uint32_t extent = uint32_t(random.number(0, 300)), count = uint32_t(random.number(1, 30));
      GemmProblem p{.m = extent, .n = extent, .k = extent, .batch = count};
      p.groups = {.dimension = dimension, .bounds = random.pick(kBounds), .spacing = 128};
      GroupArray offsets, sizes;
      for (uint32_t i = 0; i <= count; ++i) offsets.push_back(garbage(random, false, extent));
      for (uint32_t i = 0; i < count; ++i) sizes.push_back(garbage(random, false, extent));
      const uint32_t step = uint32_t(random.number(1, 20));
      const cpu::Groups groups(p, {.group_offsets = offsets.data(false), .group_sizes = sizes.data(false)}, step);
      const GroupTable table = groups.table();
      ASSERT_LE(table.steps(), cpu::most_group_steps(p, step));
      for (uint32_t g = 0; g < count; ++g) {
        const GroupEntry& entry = table.entries[g];
        ASSERT_LE(entry.steps.begin, entry.steps.end);
        ASSERT_EQ(entry.steps.begin, g == 0 ? 0 : table.entries[g - 1].steps.end);
        ASSERT_LE(entry.steps.size(), group_steps(dimension, entry.range, step));
      }
    }
  }
}

TEST(Groups, TheRestIsWhatNoGroupHolds) {
  Random random(5);
  for (int round = 0; round < 500; ++round) {
    for (const GroupBounds bounds : kBounds) {
      const GroupCase x(random, bounds, uint32_t(random.number(1, 20)), uint32_t(random.number(1, 30)),
                        uint32_t(random.number(1, 16)));
      std::vector<int> held(x.extent);
      for (const GroupRange range : x.ranges) {
        for (uint32_t i = range.begin; i < range.end; ++i) ++held[i];
      }
      const cpu::Groups groups(grouped(Grouping::m, x), arguments_of(x), 8);
      for (const GroupRange range : groups.rest()) {
        ASSERT_LE(range.end, x.extent);
        for (uint32_t i = range.begin; i < range.end; ++i) ++held[i];
      }
      for (uint32_t i = 0; i < x.extent; ++i) ASSERT_EQ(held[i], 1) << i;
    }
  }
}

}  // namespace
}  // namespace cleave
