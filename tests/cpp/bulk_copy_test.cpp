// Bulk copies of scales: what they read, and where it lands in a stage.

#include "cleave/config/bulk_copy.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

GemmConfig config_of(uint32_t tile_m) {
  GemmConfig c;
  c.tile = {.m = tile_m, .n = 128, .k = 128, .stages = 4};
  c.epilogue.scaling = Scaling::block;
  c.scales = {.rows_a = 1, .rows_b = kScaleBlock, .promote = true, .bulk_a = true};
  return c;
}

TEST(BulkCopy, HasEveryScaleAndNoVectorWithout) {
  for (uint64_t address = 4096; address < 4096 + 2 * kBulkVector; address += 4) {
    for (uint32_t lines = 1; lines <= 256; ++lines) {
      const uint64_t end = address + lines * 4;
      const BulkCopy copy = bulk_copy(address, lines * 4);
      ASSERT_EQ(copy.from % kBulkVector, 0u);
      ASSERT_EQ(copy.bytes % kBulkVector, 0u);
      ASSERT_EQ(copy.from + copy.ahead, address);
      ASSERT_LT(copy.ahead, kBulkVector);
      ASSERT_GE(copy.from + copy.bytes, end);
      ASSERT_LT(copy.from + copy.bytes - end, uint64_t(kBulkVector));
    }
  }
}

TEST(BulkCopy, EndsBeforeTheScalesOfColumns) {
  for (const uint32_t tile_m : {64u, 128u, 192u, 256u}) {
    const GemmConfig c = config_of(tile_m);
    for (uint64_t address = 0; address < kBulkVector; address += 4)
      EXPECT_LE(bulk_copy(address, tile_m * 4).bytes, scale_lines_b_at(c) * 4);
    EXPECT_EQ(scale_stage_bytes(c) % kBulkVector, 0u);
  }
}

/// The consumers add a step to what lies ahead instead of looking at each address.
TEST(BulkCopy, StepsAheadAsAddressesDo) {
  for (uint32_t stride = 1; stride < 9; ++stride) {
    uint32_t ahead = bulk_copy(12, 4).ahead;
    for (uint64_t block = 0; block < 20; ++block) {
      EXPECT_EQ(ahead, bulk_copy(12 + block * stride * 4, 4).ahead);
      ahead = (ahead + stride * 4) % kBulkVector;
    }
  }
}

}  // namespace
}  // namespace cleave
