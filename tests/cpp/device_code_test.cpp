// Device code, run by threads of the host: for what no launch can be brought to do.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
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
  alignas(8) std::array<uint8_t, group_table_bytes(kMostOfTable)> memory;
  GroupTable table;
  run_block(kWarp, [&] {
    const GroupTable built = build_group_table<kMostOfTable>(p, grouping, step, memory.data());
    if (threadIdx.x == 0) table = built;
  });
  const uint64_t most = most_group_steps(grouping, p.extent, p.count, step);
  uint64_t steps = 0;
  ASSERT_EQ(table.before[0], 0u);
  for (uint32_t g = 0; g < p.count; ++g) {
    const GroupRange range = group_range(p, g);
    ASSERT_EQ(table.ranges[g].begin, range.begin);
    ASSERT_EQ(table.ranges[g].end, range.end);
    steps += group_steps(grouping, range, step);
    const uint64_t here = most_steps_before(grouping, uint32_t(most), p.count - g - 1);
    ASSERT_EQ(table.before[g + 1], std::min(steps, here)) << "group " << g << " of " << p.count;
  }
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

/// What `rank` writes of 64 slots that all go to the second of two experts, whose rows begin at
/// `first_row`.
void rank_second_expert(uint32_t first_row, std::vector<int32_t>& indices, std::vector<int32_t>& positions) {
  constexpr uint32_t kSlots = 64;
  const std::vector<int32_t> ids(kSlots, 1);
  std::array<int32_t, 2> offsets = {int32_t(first_row), int32_t(kSlots)};
  indices.assign(3 * kSlots, -7);
  positions.assign(kSlots, -7);
  const MoeParams p{.slots = kSlots,
                    .experts = 2,
                    .ids = ids.data(),
                    .offsets = offsets.data(),
                    .indices = indices.data(),
                    .positions = positions.data(),
                    .chunk = kSlots,
                    .bins = FastDivmod(3)};
  run_block(64, [&] { rank<MoeConfig{}>(p); });
}

TEST(DeviceCode, RankGivesSlotsRowsInTheirOrder) {
  std::vector<int32_t> indices, positions;
  rank_second_expert(0, indices, positions);
  for (int32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(indices[i], i);
    EXPECT_EQ(positions[i], i);
  }
}

// As if the ids had been other ones when they were counted.
TEST(DeviceCode, RankWritesNoRowThatThereIsNot) {
  std::vector<int32_t> indices, positions;
  rank_second_expert(40, indices, positions);
  for (int32_t row = 0; row < int32_t(indices.size()); ++row)
    EXPECT_EQ(indices[row], row >= 40 && row < 64 ? row - 40 : -7) << row;
}

/// With the expert counts that make bins of one warp's prefix sums, and of several.
TEST(DeviceCode, RankCountsWhereItIsAlone) {
  for (const uint32_t experts : {1u, 31u, 32u, 70u}) {
    Random random(experts);
    constexpr uint32_t kSlots = 300;
    std::vector<int32_t> ids(kSlots), offsets(experts, -1), indices(kSlots, -7), positions(kSlots, -7);
    for (int32_t& id : ids) id = int32_t(random.number(-1, experts));
    std::vector<int32_t> expected(experts), expected_indices(kSlots);
    make_cpu_plan(MoeProblem{.operation = MoeOperation::sort, .tokens = kSlots, .experts = experts, .device = kCpu})
        ->run({.ids = ids.data(), .offsets = expected.data(), .indices = expected_indices.data()}, nullptr);
    const MoeParams p{.slots = kSlots,
                      .experts = experts,
                      .ids = ids.data(),
                      .offsets = offsets.data(),
                      .indices = indices.data(),
                      .positions = positions.data(),
                      .chunk = 8192,
                      .bins = FastDivmod(experts + 1)};
    std::fill_n(shared, std::size(shared), 0u);
    run_block(128, [&] { rank<MoeConfig{.counting = 1}>(p); });
    EXPECT_EQ(offsets, expected);
    EXPECT_EQ(indices, expected_indices);
    for (uint32_t row = 0; row < kSlots; ++row) {
      const Signed slot(indices[row]);
      EXPECT_EQ(positions[slot.index], signed_index(row, slot.dropped));
    }
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
