// Convolutions that are read the other way: rows of weight gradients are the taps' channels, columns the filters; rows
// of the others are what is made, columns the pixels.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cleave/config/loads.h"
#include "conv_choice.h"
#include "launch/conv_maps.h"
#include "plan/catalogue/candidates.h"

namespace cleave {
namespace {

const std::string kTurned = "sm90 128x160 transposed";

TEST(TurnedGradients, HaveFiltersAsColumns) {
  const auto choice = choose(problem(layer(Conv::wgrad, 128, 320)), kTurned);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->problem.m, 9 * 128);
  EXPECT_EQ(choice->problem.n, 320);
  EXPECT_EQ(choice->tiles, 9 * 2);
  const GemmConfig& c = choice->config;
  EXPECT_TRUE(gathers_a(c) && !gathers_b(c) && !has_taps_along_k(c));
  EXPECT_TRUE(has_map_b(c) && !has_map_a(c));
  EXPECT_EQ(c.epilogue.order, Order::column);
}

TEST(TurnedGradients, HaveABatchOfTapsWhereTheseAreNoWholeStrips) {
  const auto choice = choose(problem(layer(Conv::wgrad, 72, 320)), kTurned);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->problem.batch, 9);
  EXPECT_EQ(choice->problem.m, 72);
  EXPECT_EQ(choice->problem.d.stride_batch, 72);
}

TEST(TurnedGradients, GatherWhatTheOtherWayGathers) {
  const auto turned = choose(problem(layer(Conv::wgrad, 128, 320)), kTurned),
             plain = choose(problem(layer(Conv::wgrad, 128, 320)), "sm90 128x128");
  ASSERT_TRUE(turned && plain);
  const auto map = [](const Choice& choice) {
    const ConvClasses classes = deal_classes(choice.config, choice.problem.conv, 0);
    GemmParams params;
    params.a.stride = gathered_pixel_stride(choice.config, choice.problem);
    params.b.stride = params.a.stride;
    return map_of_pixels(choice.config, choice.problem, params, classes.list.front());
  };
  const Im2colMapShape a = map(*turned), b = map(*plain);
  EXPECT_EQ(gathered_pixel_stride(turned->config, turned->problem),
            gathered_pixel_stride(plain->config, plain->problem));
  EXPECT_EQ(a.box_pixels, b.box_pixels);
  EXPECT_EQ(a.box_channels, b.box_channels);
  EXPECT_TRUE(std::ranges::equal(a.lower, b.lower) && std::ranges::equal(a.upper, b.upper));
}

TEST(TurnedGradients, LeaveTheRest) {
  EXPECT_FALSE(serves(problem(layer(Conv::wgrad, 64, 160), 2), kTurned)) << "groups";
  EXPECT_FALSE(serves(problem(layer(Conv::wgrad, 60, 160)), kTurned)) << "a pixel's channels are no whole vectors";
  EXPECT_FALSE(serves(problem(layer(Conv::wgrad, 96, 160)), kTurned + " half_lines"));
}

TEST(TurnedConvolutions, HavePixelsAsColumns) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    ConvLayout conv = layer(kind, 64, 64);
    for (ConvAxis& axis : conv.axes) axis.stride = 1;
    const auto turned = choose(problem(conv), "sm90 64x256 transposed"), plain = choose(problem(conv), "sm90 128x64");
    ASSERT_TRUE(turned && plain);
    const GemmConfig& c = turned->config;
    EXPECT_EQ(turned->problem.m, 64);
    EXPECT_EQ(turned->problem.n, plain->problem.m);
    EXPECT_TRUE(gathers_b(c) && !gathers_a(c) && has_taps_along_k(c));
    EXPECT_TRUE(has_map_a(c) && !has_map_b(c));
    EXPECT_EQ(c.operands.a_major, plain->config.operands.b_major);
    EXPECT_EQ(c.operands.b_major, Major::k);
    EXPECT_EQ(c.epilogue.order, Order::column);
    EXPECT_EQ(gathered_pixel_stride(c, turned->problem), gathered_pixel_stride(plain->config, plain->problem));
    GemmParams params;
    params.a.stride = params.b.stride = 64;
    const TensorMapShape a = map_of_taps(c, turned->problem, params),
                         b = map_of_taps(plain->config, plain->problem, params);
    EXPECT_EQ(a.size, b.size);
    EXPECT_EQ(a.box, b.box);
  }
}

TEST(TurnedConvolutions, HaveFewFiltersAndOneClass) {
  const auto is_served = [](Conv kind, int64_t channels, int64_t filters, int32_t stride) {
    ConvLayout conv = layer(kind, channels, filters);
    for (ConvAxis& axis : conv.axes) axis.stride = stride;
    return serves(problem(conv), "sm90 64x256 transposed");
  };
  EXPECT_TRUE(is_served(Conv::fprop, 64, 128, 1));
  EXPECT_TRUE(is_served(Conv::fprop, 64, 64, 2));
  EXPECT_TRUE(is_served(Conv::dgrad, 64, 256, 1));
  EXPECT_FALSE(is_served(Conv::fprop, 64, 136, 1));
  EXPECT_FALSE(is_served(Conv::dgrad, 64, 64, 2)) << "four classes";
}

TEST(TurnedGradients, ThreeWarpgroupsHaveNoRegistersForC) {
  GemmProblem p = problem(layer(Conv::wgrad, 128, 320));
  p.has_c = true;
  p.c = p.d;
  EXPECT_TRUE(serves(p, "sm90 128x96 transposed"));
  EXPECT_TRUE(serves(p, kTurned));
  EXPECT_FALSE(serves(p, "sm90 192x96 transposed"));
  EXPECT_FALSE(serves(p, "sm90 256x160 transposed"));
}

TEST(TurnedGradients, AreConsideredInTilesOfTheirOwn) {
  const auto all = candidates(problem(layer(Conv::wgrad, 192, 320)), h100());
  EXPECT_TRUE(std::ranges::any_of(
      all, [](const Choice& c) { return c.spec.transposed && c.spec.tile_m == 192 && c.spec.tile_n == 160; }));
}

}  // namespace
}  // namespace cleave
