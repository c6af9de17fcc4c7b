// Kernels' names, written and read.
#include <gtest/gtest.h>

#include "plan/choice/spec.h"
#include "random.h"

namespace cleave {
namespace {

TEST(Spec, OfConvolutionsInWords) {
  const Spec stem{.tile_m = 64, .tile_n = 32, .gather = true};
  EXPECT_EQ(to_string(stem), "sm90 64x32 gather");
  const Spec columns{
      .tile_n = 64, .fuses_classes = true, .gather = true, .split = SplitKMode::parallel, .slices = 8, .cluster_k = 2};
  EXPECT_EQ(to_string(columns), "sm90 128x64 side_by_side gather parallel 8 clusters 2");
  const Spec point{.transposed = true, .tile_n = 64, .product = true};
  EXPECT_EQ(to_string(point), "sm90 128x64 transposed product");
  for (const Spec& spec : {stem, columns, point}) EXPECT_EQ(parse_spec(to_string(spec)), spec);
  EXPECT_EQ(parse_spec("sm90 128x64 clusters 2 parallel 8 gather side_by_side"), columns);
}

TEST(Spec, EveryOneComesBack) {
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    constexpr KernelFamily kFamilies[] = {KernelFamily::sm90, KernelFamily::portable, KernelFamily::direct};
    constexpr SplitKMode kSplits[] = {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster,
                                      SplitKMode::stream_k};
    Spec spec{.family = random.pick(kFamilies),
              .transposed = random.coin(),
              .tile_m = uint32_t(random.number(1, 512)),
              .tile_n = uint32_t(random.number(1, 512)),
              .pingpong = random.coin(),
              .fuses_classes = random.coin(),
              .gather = random.coin(),
              .half_lines = random.coin(),
              .narrow = random.coin(),
              .at_once = random.coin(),
              .product = random.coin(),
              .apart = random.coin(),
              .halves = random.coin(),
              .multicast_m = uint32_t(random.number(1, 2)),
              .multicast_n = uint32_t(random.number(1, 2)),
              .split = random.pick(kSplits)};
    if (random.coin()) spec.columns = uint32_t(random.number(1, 8));
    if (random.coin()) spec.ahead = uint32_t(random.number(1, 8));
    spec.in_turn = (spec.split == SplitKMode::none || spec.split == SplitKMode::parallel) && random.coin();
    if (spec.split != SplitKMode::none || spec.in_turn) spec.slices = uint32_t(random.number(1, 200));
    if (spec.split == SplitKMode::parallel) spec.cluster_k = uint32_t(random.number(1, 8));
    ASSERT_EQ(parse_spec(to_string(spec)), spec) << to_string(spec);
  }
}

TEST(Spec, RefusesOtherWords) {
  for (const char* words : {"", "sm90", "sm90 128", "sm90 128y64", "sm91 128x64", "128x64 sm90", "sm90 128x64 gathers",
                            "sm90 128x64 in_turn", "sm90 128x64 side_by_side 2", "sm90 128x64 multicast",
                            "sm90 128x64 parallel", "direct 4x64 columns", "direct 4x64 ahead", "sm90 128x64 clusters"})
    EXPECT_FALSE(parse_spec(words).has_value()) << words;
}

}  // namespace
}  // namespace cleave
