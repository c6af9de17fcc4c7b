// Device code, run by threads of the host: for what no launch can be brought to do.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <cstdint>
#include <deque>
#include <limits>
#include <thread>
#include <vector>

#include "random.h"

// What the compiler of kernels brings.
#define CLEAVE_DEVICE inline
#define __shared__

namespace {

struct Index {
  uint32_t x;
};
thread_local Index threadIdx;
Index blockIdx, blockDim;

constexpr uint32_t kWarp = 32, kMostThreads = 64;
std::deque<std::barrier<>> warps;  // one each, and last the block's
std::array<uint32_t, kMostThreads> exchanged;

void __syncthreads() {
  warps.back().arrive_and_wait();
}
void __syncwarp() {
  warps[threadIdx.x / kWarp].arrive_and_wait();
}

/// What `use` makes of the values of all lanes.
template <class Use>
uint32_t exchange(uint32_t value, const Use& use) {
  exchanged[threadIdx.x] = value;
  __syncwarp();
  const uint32_t result = use(&exchanged[threadIdx.x / kWarp * kWarp]);
  __syncwarp();
  return result;
}
uint32_t __shfl_up_sync(uint32_t, uint32_t value, uint32_t distance) {
  const uint32_t lane = threadIdx.x % kWarp;
  return exchange(value, [&](const uint32_t* of) { return of[lane - std::min(lane, distance)]; });
}
uint32_t __shfl_sync(uint32_t, uint32_t value, uint32_t lane) {
  return exchange(value, [&](const uint32_t* of) { return of[lane]; });
}
uint32_t __match_any_sync(uint32_t, uint32_t value) {
  return exchange(value, [&](const uint32_t* of) {
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < kWarp; ++i) lanes |= uint32_t(of[i] == value) << i;
    return lanes;
  });
}
int __popc(uint32_t bits) {
  return std::popcount(bits);
}
void atomicAdd(uint32_t* to, uint32_t value) {
  std::atomic_ref(*to) += value;
}

/// Runs `kernel` as a block of so many threads.
template <class Kernel>
void run_block(uint32_t threads, const Kernel& kernel) {
  blockIdx = {0};
  blockDim = {threads};
  warps.clear();
  for (uint32_t i = 0; i < threads / kWarp; ++i) warps.emplace_back(kWarp);
  warps.emplace_back(threads);
  std::vector<std::jthread> running;
  for (uint32_t i = 0; i < threads; ++i) {
    running.emplace_back([&kernel, i] {
      threadIdx = {i};
      kernel();
    });
  }
}

}  // namespace

#pragma GCC diagnostic ignored "-Wunknown-pragmas"  // "unroll", which the host's compiler does not know
#include "cleave/moe/rank.h"
#include "cleave/schedule/group_table.h"

namespace cleave {

uint32_t shared[1024];  // of `rank`

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

}  // namespace
}  // namespace cleave
