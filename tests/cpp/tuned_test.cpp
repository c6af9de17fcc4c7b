#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/embedded.h"
#include "cleave/device.h"
#include "plan/catalogue/listed.h"
#include "plan/measured/tuned.h"
#include "plan/measured/tuned_file.h"

namespace cleave {
namespace {

TEST(Tuned, EveryShippedWinnerIsOfTheCatalogue) {
  std::set<std::string> keys;
  for (const EmbeddedFile& shipped : shipped_tuned_tables()) {
    std::istringstream table{std::string(shipped.text)};
    for (std::string line; std::getline(table, line);) {
      if (line.empty() || line.starts_with('#')) continue;
      const auto winner = parse_tuned(line);
      ASSERT_TRUE(winner) << shipped.name << ": " << line;
      EXPECT_TRUE(keys.insert(winner->key).second) << shipped.name << " has twice: " << line;
    }
  }
  EXPECT_GT(keys.size(), 80u);
}

TEST(Tuned, WhatTheCatalogueLacksIsNotListed) {
  for (const char* text : {"sm90 64x0",
                           "sm90 128x100",
                           "portable 128x1",
                           "portable 64x64 transposed",
                           "portable 64x64 multicast 2x1",
                           "sm90 64x64 multicast 0x1",
                           "sm90 64x64 multicast 2x2",
                           "sm90 64x64 cluster 17",
                           "sm90 64x64 serial 0",
                           "sm90 64x64 serial 2",
                           "sm90 64x64 parallel 6 clusters 4",
                           "sm90 64x64 parallel 6 clusters 3",
                           "sm90 64x64 serial 6 clusters 2",
                           "auto 64x64",
                           "sm90 64x64 auto 2",
                           "sm90 128x128 gather pingpong",
                           "sm90 64x64 transposed side_by_side",
                           "portable 64x64 side_by_side gather",
                           "direct 8x32 product",
                           "sm90 64x64 gather product",
                           "sm90 128x96 half_lines product"}) {
    const auto spec = parse_spec(text);
    EXPECT_FALSE(spec && is_listed(*spec)) << text;
  }
}

TEST(Tuned, WhatItHasIsListed) {
  for (const char* text :
       {"direct 8x32", "sm90 64x64", "portable 128x128 parallel 3", "sm90 128x128 transposed pingpong",
        "sm90 64x32 multicast 1x2 parallel 12 clusters 4", "sm90 64x64 gather side_by_side",
        "portable 64x64 side_by_side", "sm90 128x128 side_by_side pingpong", "sm90 64x64 gather parallel 2",
        "sm90 256x96 half_lines multicast 2x1 stream_k 1", "sm90 64x64 stream_k 1",
        "sm90 64x80 transposed product cluster 4"}) {
    const auto spec = parse_spec(text);
    EXPECT_TRUE(spec && is_listed(*spec)) << text;
  }
}

GemmProblem k_major(DType type, int64_t m, int64_t n, int64_t k) {
  GemmProblem p;
  p.m = m, p.n = n, p.k = k;
  p.a = {type, k, 1, 0, 16};
  p.b = {type, 1, k, 0, 16};
  p.c = p.d = {type, n, 1, 0, 16};
  return p;
}

TEST(Tuned, SixteenBitFloatsAreAlike) {
  const DeviceInfo& h100 = device_info(kPlanOnlyH100);
  const auto measured = tuned(k_major(DType::f16, 128, 128, 16384), h100);
  ASSERT_TRUE(measured);
  EXPECT_EQ(tuned(k_major(DType::bf16, 128, 128, 16384), h100), measured);
  EXPECT_FALSE(tuned(k_major(DType::i8, 128, 128, 16384), h100));
  EXPECT_FALSE(tuned(k_major(DType::bf16, 128, 128, 16392), h100));
}

}  // namespace
}  // namespace cleave
