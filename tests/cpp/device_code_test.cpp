// Device code, run by threads of the host: for what no launch can be brought to do.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "host_threads.h"
#include "random.h"

// Behind what they ask for.
#include "cleave/moe/rank.h"
#include "cleave/route/choose.h"
#include "cleave/route/logits.h"
#include "cleave/schedule/group_table.h"
#include "moe/problem.h"
#include "route/launches.h"
#include "route/logits_launches.h"
#include "route/logits_problem.h"
#include "route/problem.h"

namespace cleave {

uint32_t shared[1024];  // of `rank`
float of_parts[32 * kLogitsWarps];

namespace {

constexpr uint32_t kMostOfTable = 64;

/// Checks the table that a block builds of these groups.
void check_table(const GroupParams& p, Grouping grouping, uint32_t step) {
  alignas(GroupEntry) std::array<uint8_t, group_table_bytes(kMostOfTable)> memory;
  GroupTable table;
  run_block(kWarp, [&] {
    const GroupTable built = build_group_table<kMostOfTable>(p, grouping, step, memory.data());
    if (threadIdx.x == 0) table = built;
  });
  const uint64_t most = most_group_steps(grouping, p.extent, p.count, step);
  uint64_t steps = 0;
  for (uint32_t g = 0; g < p.count; ++g) {
    const GroupEntry& entry = table.entries[g];
    const GroupRange range = group_range(p, g);
    ASSERT_EQ(entry.range.begin, range.begin);
    ASSERT_EQ(entry.range.end, range.end);
    ASSERT_EQ(entry.steps.begin, g == 0 ? 0 : table.entries[g - 1].steps.end);
    steps += group_steps(grouping, range, step);
    const uint64_t here = most_steps_before(grouping, uint32_t(most), p.count - g - 1);
    ASSERT_EQ(entry.steps.end, std::min(steps, here)) << "group " << g << " of " << p.count;
  }
  ASSERT_EQ(table.steps(), table.entries[p.count - 1].steps.end);
}

/// Checks the group from which the table says to walk.
void check_begin(const GroupParams& p, Grouping grouping, uint32_t step, FirstPosition at) {
  alignas(GroupEntry) std::array<uint8_t, group_table_bytes(kMostOfTable)> memory;
  GroupTable table;
  run_block(kWarp, [&] {
    const GroupTable built = build_group_table<kMostOfTable>(p, grouping, step, memory.data(), 0, at);
    if (threadIdx.x == 0) table = built;
  });
  uint32_t group = 0;
  while (group < p.count && table.entries[group].steps.end * at.each <= at.position) ++group;
  EXPECT_EQ(table.first_group(), group < p.count ? group : 0) << at.position << " of " << table.steps() * at.each;
}

TEST(DeviceCode, GroupTable) {
  Random random(1);
  for (int round = 0; round < 6; ++round) {
    const uint32_t count = uint32_t(random.number(1, kMostOfTable));
    std::vector<int32_t> ends;
    int32_t end = 0;
    for (uint32_t g = 0; g < count; ++g) ends.push_back(end += int32_t(random.number(0, 1) * random.number(0, 500)));
    const GroupParams p{.offsets = ends.data(), .count = count, .extent = uint32_t(end) + 5};
    for (const Grouping grouping : {Grouping::m, Grouping::n, Grouping::k})
      check_table(p, grouping, uint32_t(random.number(16, 128)));
  }
}

TEST(DeviceCode, GroupTableSaysWhereToBegin) {
  Random random(2);
  for (const uint32_t count : {1u, 31u, 32u, 33u, 64u}) {
    std::vector<int64_t> ends;
    int64_t end = 0;
    for (uint32_t g = 0; g < count; ++g) ends.push_back(end += random.number(0, 1) * random.number(0, 500));
    const GroupParams p{.offsets = ends.data(), .wide = true, .count = count, .extent = uint32_t(end) + 5};
    for (const uint32_t each : {1u, 7u}) {
      for (const uint32_t position : {0u, each - 1, each, 5 * each, 40 * each, 100000u})
        check_begin(p, Grouping::m, 64, {position, each});
    }
  }
}

TEST(DeviceCode, GroupTableOfOverlappingGroupsCountsNoFurtherThanOthers) {
  constexpr int32_t kAll = std::numeric_limits<int32_t>::max();
  for (const uint32_t count : {2u, 31u, 32u, 33u, 64u}) {
    const std::vector<int32_t> starts(count, 0), sizes(count, kAll);
    const GroupParams p{.offsets = starts.data(),
                        .sizes = sizes.data(),
                        .bounds = GroupBounds::starts,
                        .count = count,
                        .extent = uint32_t(kAll)};
    for (const Grouping grouping : {Grouping::m, Grouping::n, Grouping::k}) check_table(p, grouping, 16);
  }
}

/// Counters of chunks in the host's memory.
struct HostMemory {
  ChunkCounters* counters;

  uint64_t claim(uint64_t bit) const { return std::atomic_ref(counters->claims).fetch_or(bit); }
  uint64_t claims() const {
    std::this_thread::yield();  // who asks waits
    return std::atomic_ref(counters->claims);
  }
  uint32_t arrive(uint32_t value) const { return std::atomic_ref(counters->arrived).fetch_add(value); }
  uint32_t arrived() const { return std::atomic_ref(counters->arrived); }
  void clear() const { *counters = {}; }
};

/// Slots to sort, in chunks and parts of these sizes.
struct Sorting {
  Sorting(uint32_t slots, uint32_t experts, uint32_t chunk, uint32_t part)
      : counts(ceil_div(slots, chunk) * (experts + 1)), offsets(experts), indices(2 * slots, -7), positions(slots) {
    Random random(slots + experts);
    for (uint32_t i = 0; i < slots; ++i) ids.push_back(int32_t(random.number(-1, experts)));
    params = {.slots = slots, .experts = experts, .chunk = chunk, .part = part};
    params.parts = ceil_div(min_of(chunk, slots), part);
    params.bins = FastDivmod(experts + 1);
  }

  /// Ranks them by blocks that run one after the other.
  template <class Memory>
  void run(const std::vector<uint32_t>& blocks, ChunkCounters& counters) {
    params.ids = ids.data();
    params.offsets = offsets.data();
    params.indices = indices.data();
    params.positions = positions.data();
    params.counts = counts.data();
    params.counters = &counters;
    for (const uint32_t block : blocks) {
      std::fill_n(shared, std::size(shared), 0xfffffffu);
      run_block(128, [&] { rank<MoeConfig{}, Memory>(params); }, block, uint32_t(blocks.size()));
    }
  }

  void check_beside_the_cpu_backend(const std::vector<uint32_t>& blocks) {
    ChunkCounters counters = {};
    run<HostMemory>(blocks, counters);
    std::vector<int32_t> expected_offsets(params.experts), expected(indices);
    make_cpu_plan(
        MoeProblem{.operation = MoeOperation::sort, .tokens = params.slots, .experts = params.experts, .device = kCpu})
        ->run({.ids = ids.data(), .offsets = expected_offsets.data(), .indices = expected.data()}, nullptr);
    EXPECT_EQ(offsets, expected_offsets);
    EXPECT_EQ(indices, expected);
    for (uint32_t row = 0; row < params.slots; ++row) {
      const Signed slot(indices[row]);
      EXPECT_EQ(positions[slot.index], signed_index(row, slot.dropped));
    }
    EXPECT_EQ(counters.claims, 0u);
    EXPECT_EQ(counters.arrived, 0u);
  }

  MoeParams params;
  std::vector<uint32_t> counts;
  std::vector<int32_t> ids, offsets, indices, positions;
};

/// With as many experts as are in one warp's prefix sums, and in several.
TEST(DeviceCode, RankGivesSlotsRowsInTheirOrder) {
  for (const uint32_t experts : {1u, 31u, 32u, 70u}) Sorting(300, experts, 2048, 96).check_beside_the_cpu_backend({0});
}

// The first block finds that no other runs, and counts all chunks; the others find theirs taken.
TEST(DeviceCode, RankWaitsForNoBlockThatDoesNotRun) {
  for (const uint32_t experts : {1u, 40u, 127u}) {
    for (const std::vector<uint32_t>& blocks :
         {std::vector{0u, 1u, 2u, 3u, 4u}, {4u, 2u, 0u, 3u, 1u}, {2u, 4u, 3u, 1u, 0u}})
      Sorting(300, experts, 64, 32).check_beside_the_cpu_backend(blocks);
  }
}

/// All ids name nothing any more once the chunks are counted.
struct ChangingMemory : HostMemory {
  struct Counters : ChunkCounters {
    std::vector<int32_t>* ids;
  };

  uint32_t arrive(uint32_t value) const {
    std::ranges::fill(*static_cast<Counters*>(counters)->ids, -1);
    return HostMemory::arrive(value);
  }
};

TEST(DeviceCode, RankWritesNoRowThatThereIsNot) {
  Sorting sorting(128, 2, 64, 32);
  std::ranges::fill(sorting.ids, 1);
  ChangingMemory::Counters counters = {{}, &sorting.ids};
  sorting.run<ChangingMemory>({1, 0}, counters);
  for (uint32_t row = 128; row < sorting.indices.size(); ++row) EXPECT_EQ(sorting.indices[row], -7) << row;
  EXPECT_EQ(sorting.offsets, (std::vector<int32_t>{0, 64}));
}

// Threads that stand for blocks, some of which begin when others have ended. Whoever goes on sees all counts.
TEST(DeviceCode, ChunksAreClaimedOnce) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const uint32_t chunks = uint32_t(random.number(2, 8));
    ChunkCounters counters = {};
    std::vector<uint32_t> counted(chunks);
    std::vector<uint32_t> blocks(chunks);
    std::iota(blocks.begin(), blocks.end(), 0u);
    std::ranges::shuffle(blocks, std::mt19937(uint32_t(round)));
    const auto run = [&](uint32_t block) {
      const ChunkClaims<HostMemory> claims{{&counters}, chunks};
      uint32_t chunk = block;
      if (claims.is_free(claims.claim(chunk), chunk)) {
        do ++counted[chunk];
        while ((chunk = claims.arrive()) < chunks);
        for (const uint32_t times : counted) EXPECT_EQ(times, 1u);
      }
      claims.depart();
    };
    const size_t together = size_t(random.number(1, chunks));
    for (size_t first = 0; first < chunks; first += together) {
      std::vector<std::jthread> running;
      for (size_t i = first; i < std::min<size_t>(first + together, chunks); ++i) running.emplace_back(run, blocks[i]);
    }
    EXPECT_EQ(std::ranges::count(counted, 1u), chunks);
    EXPECT_EQ(counters.claims, 0u);
    EXPECT_EQ(counters.arrived, 0u);
  }
}

/// That the kernel routes as the CPU backend does, bit by bit: drawn logits with ties, infinities and NaNs.
template <RouteConfig C>
void check_routing(RouteProblem p, uint32_t seed) {
  constexpr uint32_t kTokens = 2;  // a warp each
  p.tokens = kTokens;
  p.logits.stride_row = p.experts;
  p.device = kCpu;
  ASSERT_EQ(config_of(p), C);
  Random random(seed);
  const float special[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(), -0.0f};
  std::vector<float> logits(size_t(kTokens * p.experts)), bias(size_t(p.experts));
  for (float& x : logits) x = float(random.number(-40, 40)) / 8;
  for (float& x : bias) x = float(random.number(-8, 8)) / 8;
  if (seed % 3 == 0) logits[size_t(random.number(0, int64_t(logits.size()) - 1))] = special[seed / 3 % 4];
  const size_t slots = size_t(kTokens * p.top_k);
  std::vector<int32_t> ids(slots), expected_ids(slots);
  std::vector<float> weights(slots), expected(slots);
  make_cpu_plan(p)->run(
      {.logits = logits.data(), .bias = bias.data(), .ids = expected_ids.data(), .weights = expected.data()}, nullptr);

  RouteParams params = route_launches(p).at(0).params;
  params.logits = logits.data();
  params.bias = bias.data();
  params.ids = ids.data();
  params.weights = weights.data();
  run_block(kTokens * kWarp, [&] { choose<C>(params); });
  EXPECT_EQ(ids, expected_ids) << seed;
  for (size_t i = 0; i < slots; ++i) {
    const bool both = weights[i] != weights[i] && expected[i] != expected[i];
    EXPECT_TRUE(both || std::bit_cast<uint32_t>(weights[i]) == std::bit_cast<uint32_t>(expected[i]))
        << seed << ": " << weights[i] << " and " << expected[i];
  }
}

TEST(DeviceCode, RoutesAsTheCpuBackendDoes) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    check_routing<RouteConfig{.per_lane = 4}>({.experts = 100, .top_k = 1 + seed}, seed);
    check_routing<RouteConfig{.per_lane = 1, .renormalize = false}>(
        {.experts = 32, .top_k = 32, .renormalize = false, .routed_scaling_factor = 2.5f}, seed);
    check_routing<RouteConfig{.per_lane = 8,
                              .scoring_func = ScoringFunc::sigmoid,
                              .has_bias = true,
                              .has_groups = true,
                              .group_score = GroupScore::top2_sum}>({.experts = 256,
                                                                     .top_k = 8,
                                                                     .scoring_func = ScoringFunc::sigmoid,
                                                                     .has_bias = true,
                                                                     .n_group = 8,
                                                                     .topk_group = 1 + seed % 7},
                                                                    seed);
    check_routing<RouteConfig{.per_lane = 8, .has_groups = true, .renormalize = false}>({.experts = 160,
                                                                                         .top_k = 6,
                                                                                         .n_group = 32,
                                                                                         .topk_group = 3 + seed,
                                                                                         .group_score = GroupScore::max,
                                                                                         .renormalize = false},
                                                                                        seed);
    check_routing<RouteConfig{.per_lane = 1, .has_bias = true}>({.experts = 7, .top_k = 7, .has_bias = true}, seed);
  }
}

/// That a CTA, which has all logits, gives the CPU backend's bits.
template <LogitsConfig C>
void check_logits(int64_t tokens, int64_t experts, int64_t features, uint32_t seed) {
  Random random(seed);
  const auto draw = [&](size_t count, DType type) {
    std::vector<std::byte> data(count * size_of(type));
    for (size_t i = 0; i < count; ++i)
      store_element(type, data.data(), int64_t(i), float(random.number(-999, 999)) / 77);
    return data;
  };
  const int64_t stride = round_up<int64_t>(features, kLaneElements) + kLaneElements;
  const auto x = draw(size_t(tokens * stride), C.x), weight = draw(size_t(experts * stride), C.weight);
  const RouterLogitsProblem p{.tokens = tokens,
                              .experts = experts,
                              .features = features,
                              .x = {.dtype = C.x, .stride_row = stride, .alignment = 4},
                              .weight = {.dtype = C.weight, .stride_row = stride, .alignment = 4},
                              .device = kCpu};
  std::vector<float> made(size_t(tokens * experts), -1.0f), expected(made);
  make_cpu_plan(p)->run({.x = x.data(), .weight = weight.data(), .logits = expected.data()}, nullptr);
  LogitsParams params = logits_launches(p).at(0).params;
  params.expert_ctas = FastDivmod(1);
  params.x = x.data();
  params.weight = weight.data();
  params.logits = made.data();
  run_block(kLogitsWarps * kWarp, [&] { logits<C>(params); });
  EXPECT_EQ(made, expected) << features;
}

TEST(DeviceCode, LogitsAreThoseOfTheCpuBackend) {
  for (const int64_t features : {0, 1, 127, 130, 1024, 3000})
    check_logits<LogitsConfig{.tokens = 4, .experts = 2, .vectors = false, .static_weight = true}>(3, 2, features, 2);
  for (const int64_t features : {0, 4, 132, 1024, 3000, 9000}) {
    check_logits<LogitsConfig{}>(1, 1, features, 1);
    check_logits<LogitsConfig{.x = DType::f16, .weight = DType::bf16, .tokens = 2, .experts = 4}>(2, 3, features, 3);
    check_logits<LogitsConfig{.x = DType::f32, .weight = DType::f32, .tokens = 1, .experts = 2, .static_weight = true}>(
        1, 2, features, 4);
  }
}

}  // namespace
}  // namespace cleave
