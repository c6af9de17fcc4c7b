// Which kernels serve which convolution, and what they make of it.
#include <gtest/gtest.h>

#include <algorithm>

#include "cleave/core/math.h"
#include "cleave/names.h"
#include "conv_choice.h"
#include "plan/catalogue/candidates.h"
#include "problem/conv.h"

namespace cleave {
namespace {

TEST(ConvChoice, HopperServesEveryDirection) {
  for (const Conv kind : kConvs) {
    for (const DType type : {DType::f16, DType::bf16}) {
      const auto choice = choose(problem(layer(kind), 1, type), "sm90 128x128");
      ASSERT_TRUE(choice.has_value()) << to_string(kind);
      EXPECT_EQ(choice->config.conv.kind, kind);
      EXPECT_EQ(choice->config.conv.axes, 2u);
      EXPECT_TRUE(choice->config.store.by_tma);
    }
  }
}

TEST(ConvChoice, OtherTypesGoForwardOnHopper) {
  const auto typed = [](Conv kind, DType in, DType out, int64_t channels) {
    return implicit_gemm(layer(kind, channels), 1, in, out);
  };
  EXPECT_TRUE(mapped(typed(Conv::fprop, DType::f32, DType::f32, 4)));
  EXPECT_FALSE(mapped(typed(Conv::fprop, DType::f32, DType::f32, 2)));
  EXPECT_TRUE(mapped(typed(Conv::fprop, DType::i8, DType::i32, 16)));
  EXPECT_FALSE(mapped(typed(Conv::fprop, DType::i8, DType::i32, 8)));
  // WGMMA reads only 16-bit elements across their contiguous dimension.
  EXPECT_FALSE(mapped(typed(Conv::dgrad, DType::f32, DType::f32, 64)));
  EXPECT_FALSE(mapped(typed(Conv::wgrad, DType::f32, DType::f32, 64)));
}

TEST(ConvChoice, CornersOfIm2col) {
  const auto forward = [](int32_t before, int32_t after, const ConvAxis& depth = kNone) {
    return problem(along_width(Conv::fprop, {.size = 300, .filter = 1, .pad_begin = before, .pad_end = after}, depth));
  };
  EXPECT_TRUE(mapped(forward(128, 127)));
  EXPECT_FALSE(mapped(forward(129, 127)));
  EXPECT_FALSE(mapped(forward(128, 128)));
  const ConvAxis depth{.size = 4};
  EXPECT_TRUE(mapped(forward(16, 15, depth)));
  EXPECT_FALSE(mapped(forward(17, 15, depth)));
  EXPECT_FALSE(mapped(forward(16, 16, depth)));

  // A gradient's pixels begin after their outputs instead.
  const auto gradient = [](int32_t padding) {
    return problem(along_width(Conv::dgrad, {.size = 300, .filter = 1, .pad_begin = padding, .pad_end = padding}));
  };
  EXPECT_TRUE(mapped(gradient(127)));
  EXPECT_FALSE(mapped(gradient(128)));
}

TEST(ConvChoice, OffsetsOfIm2col) {
  // Padded so that the corners allow one more.
  const auto taps = [](int32_t apart, int32_t before, int32_t after, const ConvAxis& depth) {
    const ConvAxis axis{.size = 300, .filter = 2, .pad_begin = before, .pad_end = after, .dilation = apart};
    return problem(along_width(Conv::wgrad, axis, depth));
  };
  EXPECT_TRUE(mapped(taps(255, 128, 128, kNone)));
  EXPECT_FALSE(mapped(taps(256, 128, 128, kNone)));
  const ConvAxis depth{.size = 4};
  EXPECT_TRUE(mapped(taps(31, 16, 16, depth)));
  EXPECT_FALSE(mapped(taps(32, 16, 16, depth)));
}

TEST(ConvChoice, StepsOfIm2col) {
  for (const Conv kind : {Conv::fprop, Conv::wgrad}) {
    EXPECT_TRUE(mapped(problem(along_width(kind, {.size = 40, .filter = 2, .stride = 8}))));
    EXPECT_FALSE(mapped(problem(along_width(kind, {.size = 40, .filter = 2, .stride = 9}))));
  }
  // Within a residue class there is no stride.
  EXPECT_TRUE(mapped(problem(along_width(Conv::dgrad, {.size = 40, .filter = 2, .stride = 9}))));
}

TEST(ConvChoice, DepthIsAThirdAxis) {
  ConvLayout conv = layer(Conv::dgrad);
  conv.axes[0] = conv.axes[1];
  const auto choice = choose(problem(conv), "sm90 128x128");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.conv.axes, 3u);
  EXPECT_EQ(choice->config.conv.class_capacity, 8u);
}

TEST(ConvChoice, NothingToGatherFromIsNoMap) {
  // Outputs along the height, but none of an image without pixels.
  ConvLayout conv = layer(Conv::fprop);
  conv.axes[1] = {.size = 0, .filter = 1, .pad_begin = 2, .pad_end = 2};
  EXPECT_GT(output_pixels(conv), 0);
  EXPECT_FALSE(mapped(problem(conv)));
}

TEST(ConvChoice, AlignmentOfChannels) {
  const auto aligned = [](Conv kind, int64_t channels, int64_t filters) {
    return mapped(problem(layer(kind, channels, filters)));
  };
  EXPECT_TRUE(aligned(Conv::fprop, 72, 10));
  EXPECT_FALSE(aligned(Conv::fprop, 68, 64));
  EXPECT_TRUE(aligned(Conv::dgrad, 72, 72));
  EXPECT_FALSE(aligned(Conv::dgrad, 72, 68));
  EXPECT_FALSE(aligned(Conv::dgrad, 68, 72));
  EXPECT_TRUE(aligned(Conv::wgrad, 72, 72));
  EXPECT_FALSE(aligned(Conv::wgrad, 72, 68));
  EXPECT_FALSE(aligned(Conv::wgrad, 68, 72));
}

// Lines that are aligned do not make taps so.
TEST(ConvChoice, AlignmentOfTaps) {
  GemmProblem p = problem(layer(Conv::fprop, 68, 64));
  p.a.stride_row = 72;
  p.b.stride_col = 9 * 68 + 4;
  EXPECT_FALSE(mapped(p));
  EXPECT_EQ(choose(p, "portable 64x64")->config.operands.load_bytes_a, 8u);
  EXPECT_EQ(choose(p, "portable 64x64")->config.operands.load_bytes_b, 8u);
}

TEST(ConvChoice, NarrowCopiesKeepWithinATap) {
  for (const Conv kind : kConvs) {
    for (const auto& [channels, bytes] : {std::pair{8u, 16u}, {12, 8}, {6, 4}, {3, 2}}) {
      const auto choice = choose(problem(layer(kind, channels, 64)), "portable 64x64");
      ASSERT_TRUE(choice.has_value());
      // In dgrad the channels are those of filters, and dy has 64.
      const auto& config = choice->config;
      EXPECT_EQ(kind == Conv::fprop ? config.operands.load_bytes_a : config.operands.load_bytes_b, bytes);
    }
  }
}

TEST(ConvChoice, SlicesOfWiderTensors) {
  GemmProblem p = problem(layer(Conv::fprop));
  p.a.stride_row = 136;
  EXPECT_TRUE(mapped(p));
  EXPECT_TRUE(choose(p, "sm90 128x128")->config.store.by_tma);
  p.d.stride_row = 260;
  EXPECT_TRUE(mapped(p));
  EXPECT_FALSE(choose(p, "sm90 128x128")->config.store.by_tma);
  p.a.stride_row = 132;
  EXPECT_FALSE(mapped(p));
  p.a.stride_row = 136;
  p.a.alignment = 8;
  EXPECT_FALSE(mapped(p));
}

TEST(ConvChoice, GroupsHaveWholeBlocksOfChannels) {
  EXPECT_TRUE(mapped(problem(layer(Conv::fprop, 64, 32), 4)));
  EXPECT_FALSE(mapped(problem(layer(Conv::fprop, 32, 64), 4)));
  EXPECT_TRUE(mapped(problem(layer(Conv::dgrad, 32, 64), 4)));
  EXPECT_FALSE(mapped(problem(layer(Conv::dgrad, 64, 32), 4)));
  EXPECT_TRUE(mapped(problem(layer(Conv::wgrad, 64, 64), 4)));
  EXPECT_FALSE(mapped(problem(layer(Conv::wgrad, 96, 64), 4))) << "its batch are the taps";
  for (const Conv kind : kConvs) EXPECT_FALSE(mapped(problem(layer(kind, 1, 1), 64)));
}

// A launch for each: the next group's channels lie beyond the map's.
TEST(ConvChoice, WideGroupsOfPartsOfBlocksAreLaunchedOneByOne) {
  for (const Conv kind : kConvs) {
    const GemmProblem p = problem(layer(kind, 112, 112), 3);
    const auto choice = choose(p, "sm90 128x128 by_group");
    ASSERT_TRUE(choice.has_value()) << to_string(kind);
    EXPECT_EQ(choice->parts, 3u);
    EXPECT_EQ(to_string(choice->spec), "sm90 128x128 by_group");
    const auto one = choose(one_group(p), "sm90 128x128");
    ASSERT_TRUE(one.has_value());
    EXPECT_EQ(choice->config, one->config);
    EXPECT_EQ(choice->problem, one->problem);
    const auto is_by_group = [](const Choice& each) { return each.spec.by_group; };
    EXPECT_TRUE(std::ranges::any_of(candidates(p, h100()), is_by_group));
    EXPECT_FALSE(serves(problem(layer(kind, 128, 128), 3), "sm90 128x128 by_group")) << "whole blocks";
    EXPECT_FALSE(serves(problem(layer(kind, 112, 112)), "sm90 128x128 by_group")) << "one group";
    EXPECT_FALSE(serves(problem(layer(kind, 48, 48), 3), "sm90 128x128 by_group")) << "narrow groups";
    EXPECT_FALSE(serves(problem(layer(kind, 112, 112), 33), "sm90 128x128 by_group")) << "as many launches";
  }
}

TEST(ConvChoice, ABlockIsOfOneTap) {
  const auto depth = [](int64_t channels) {
    return choose(problem(layer(Conv::fprop, channels)), "sm90 64x64")->config.tile.k;
  };
  EXPECT_EQ(depth(128), 128u) << "small stages are merged";
  EXPECT_EQ(depth(192), 64u);
  EXPECT_EQ(choose(problem(layer(Conv::fprop, 192)), "sm90 64x64")->schedule.k_blocks, 9u * 3);
}

// wgrad's columns run over taps of whole strips of 128 bytes; of others it makes a product each.
TEST(ConvChoice, TapsAreColumnsOrABatch) {
  const GemmProblem p = problem(layer(Conv::wgrad));
  const auto columns = choose(p, "sm90 128x192");
  ASSERT_TRUE(columns.has_value());
  EXPECT_EQ(columns->problem, p);
  EXPECT_EQ(columns->tiles, 6 * 2.0) << "tiles of a tap and a half";
  const auto batch = choose(problem(layer(Conv::wgrad, 120)), "sm90 128x128");
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->problem.batch, 9);
  EXPECT_EQ(batch->problem.n, 120);
  EXPECT_EQ(batch->problem.d.stride_batch, 120);
  EXPECT_EQ(batch->tiles, 9 * 2.0);
  const auto portable = choose(p, "portable 128x128");
  ASSERT_TRUE(portable.has_value());
  EXPECT_EQ(portable->problem, p);
  EXPECT_EQ(portable->tiles, 9 * 2.0);
}

TEST(ConvChoice, OtherProductsHaveNoSuchSpecs) {
  const GemmProblem p = problem(layer(Conv::dgrad));
  EXPECT_FALSE(serves(p, "sm90 128x128 transposed"));
  GemmProblem dense = p;
  dense.conv = {};
  EXPECT_TRUE(serves(dense, "sm90 128x128 transposed"));
  EXPECT_FALSE(serves(dense, "sm90 128x128 gather"));
  EXPECT_FALSE(serves(dense, "portable 64x64 side_by_side"));
}

TEST(ConvChoice, NothingToAddIsForThePortableKernel) {
  EXPECT_FALSE(mapped(problem(layer(Conv::fprop, 0, 64))));
  EXPECT_FALSE(mapped(problem(layer(Conv::dgrad, 64, 0))));
  ConvLayout conv = layer(Conv::wgrad);
  conv.images = 0;
  EXPECT_FALSE(mapped(problem(conv)));
}

TEST(ConvChoice, DivisionsAreTheKernels) {
  struct Ways {
    Division division;
    bool load, store;
  };
  for (const Ways& ways : {Ways{Division::fast, true, true}, Ways{Division::plain, false, false},
                           Ways{Division::fast_load, true, false}, Ways{Division::fast_store, false, true}}) {
    ConvLayout conv = layer(Conv::dgrad);
    conv.division = ways.division;
    for (const char* spec : {"sm90 128x128", "portable 64x64"}) {
      const auto choice = choose(problem(conv), spec);
      ASSERT_TRUE(choice.has_value());
      EXPECT_EQ(choice->config.conv.fast_load, ways.load);
      EXPECT_EQ(choice->config.conv.fast_store, ways.store);
    }
  }
}

// One map has the channels of all groups, and one the filters: only where
// groups follow each other.
TEST(ConvChoice, GroupsThatLieElsewhere) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    const GemmProblem packed = implicit_gemm(layer(kind, 64, 64), 4, DType::f16, DType::f16);
    EXPECT_TRUE(serves(packed, "sm90 128x64"));
    for (MatrixLayout GemmProblem::* matrix : {&GemmProblem::a, &GemmProblem::b}) {
      for (const int64_t times : {0, 2}) {
        GemmProblem p = packed;
        (p.*matrix).stride_batch *= times;
        EXPECT_FALSE(serves(p, "sm90 128x64"));
        EXPECT_TRUE(serves(p, "portable 64x64"));
      }
    }
  }
}

}  // namespace
}  // namespace cleave
