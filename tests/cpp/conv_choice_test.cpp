// Which kernels serve which convolution, and what they make of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cleave/core/math.h"
#include "cleave/names.h"
#include "conv_geometry.h"
#include "plan/catalogue.h"
#include "plan/model_device.h"
#include "problem/conv.h"

namespace cleave {
namespace {

constexpr ConvAxis kNone = {};

const DeviceInfo& h100() {
  static const DeviceInfo device = model_device("sm_90a");
  return device;
}

std::optional<Choice> choose(const GemmProblem& problem, const std::string& spec) {
  return make_choice(problem, h100(), parse_spec(spec).value());
}

bool serves(const GemmProblem& problem, const std::string& spec) {
  return choose(problem, spec).has_value();
}

/// By im2col; the portable kernel serves everything.
bool mapped(const GemmProblem& problem) {
  EXPECT_TRUE(serves(problem, "portable 64x64"));
  return serves(problem, "sm90 128x128");
}

GemmProblem problem(const ConvLayout& conv, int64_t groups = 1, DType type = DType::f16) {
  return implicit_gemm(conv, groups, type, type);
}

/// 3 x 3 taps at stride 2, padded by one pixel.
ConvLayout layer(Conv kind, int64_t channels = 128, int64_t filters = 256) {
  const ConvAxis axis{.size = 28, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  return {.kind = kind, .images = 8, .channels = channels, .filters = filters, .axes = {kNone, axis, axis}};
}

/// With `axis` as its width.
ConvLayout along_width(Conv kind, const ConvAxis& axis, const ConvAxis& depth = kNone) {
  return {.kind = kind, .images = 2, .channels = 64, .filters = 64, .axes = {depth, {.size = 8}, axis}};
}

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

TEST(ConvChoice, ClassesWithMaps) {
  const auto strided = [](int32_t height, int32_t width) {
    ConvLayout conv = layer(Conv::dgrad);
    conv.axes[1].stride = height;
    conv.axes[2].stride = width;
    return problem(conv);
  };
  EXPECT_TRUE(mapped(strided(4, 4)));
  EXPECT_FALSE(mapped(strided(4, 5)));
  EXPECT_FALSE(mapped(strided(8, 8)));
  EXPECT_EQ(choose(strided(8, 8), "portable 64x64")->config.conv.class_capacity, 64u);
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

TEST(ConvChoice, ClassesOfSeveralGroups) {
  const GemmProblem one = problem(layer(Conv::dgrad, 64, 64)), four = problem(layer(Conv::dgrad, 64, 64), 4);
  EXPECT_TRUE(choose(one, "sm90 128x128")->config.store.by_tma);
  EXPECT_FALSE(choose(four, "sm90 128x128")->config.store.by_tma);
  EXPECT_TRUE(serves(one, "sm90 128x128 stream_k 1"));
  EXPECT_FALSE(serves(four, "sm90 128x128 stream_k 1"));
  ConvLayout unstrided = layer(Conv::dgrad, 64, 64);
  unstrided.axes[1].stride = unstrided.axes[2].stride = 1;
  EXPECT_TRUE(serves(problem(unstrided, 4), "sm90 128x128 stream_k 1"));
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

TEST(ConvChoice, FewChannelsAreGatheredByThreads) {
  for (const Conv kind : {Conv::fprop, Conv::wgrad}) {
    const GemmProblem stem = problem(layer(kind, 8, 64));
    const auto choice = choose(stem, "sm90 64x64 gather");
    ASSERT_TRUE(choice.has_value());
    EXPECT_EQ(choice->problem, stem) << "taps without a gap, no batch of them";
    EXPECT_EQ(choice->config.tile.k, 64u);
    const uint32_t elements = kind == Conv::fprop ? 9 * 8 : 8 * 14 * 14;
    EXPECT_EQ(choice->schedule.k_blocks, ceil_div(elements, 64u));
    EXPECT_FALSE(serves(stem, "sm90 64x64 gather multicast 2x1"));
    EXPECT_FALSE(serves(stem, "portable 64x64 gather"));
    // Threads know no limits of im2col, and no groups.
    ConvLayout far = layer(kind, 8, 64);
    far.axes[2] = {.size = 400, .filter = 2, .stride = 9, .pad_begin = 200, .pad_end = 200};
    EXPECT_TRUE(serves(problem(far), "sm90 64x64 gather"));
    EXPECT_FALSE(serves(problem(far), "sm90 64x64"));
    EXPECT_TRUE(serves(problem(layer(kind, 8, 64), 4), "sm90 64x64 gather"));
  }
}

TEST(ConvChoice, GradientsOfFewFiltersAreGatheredByThreads) {
  const GemmProblem p = problem(layer(Conv::dgrad, 64, 32));
  const auto choice = choose(p, "sm90 128x64 gather");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.schedule.grouping, Grouping::classes);
  EXPECT_FALSE(has_map_a(choice->config) || has_map_b(choice->config));
  // Classes of 4, 2, 2 and 1 taps of 32 filters, 64 a block; 8 * 14 * 14 rows each.
  EXPECT_EQ(choice->schedule.k_blocks, ceil_div(2u + 1 + 1 + 1, 4u));
  // Ten filters are put together; the filters themselves come in pieces of 16 bytes.
  const auto head = choose(problem(layer(Conv::dgrad, 64, 10)), "sm90 128x64 gather");
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->config.operands.load_bytes_a, 4u);
  EXPECT_EQ(head->config.operands.load_bytes_b, 16u);
  EXPECT_FALSE(serves(problem(layer(Conv::dgrad, 3, 10)), "sm90 128x64 gather"));
  // Every class brings maps of its own.
  ConvLayout strided = layer(Conv::dgrad, 64, 32);
  strided.axes[1].stride = strided.axes[2].stride = 8;
  EXPECT_FALSE(serves(problem(strided), "sm90 128x64 gather"));
}

TEST(ConvChoice, ThreadsPutNarrowPixelsTogether) {
  for (const Conv kind : {Conv::fprop, Conv::wgrad}) {
    for (const auto& [channels, grain] : {std::pair(3, 2u), {2, 4u}, {4, 8u}, {8, 16u}}) {
      const auto choice = choose(problem(layer(kind, channels, 64)), "sm90 64x64 gather");
      ASSERT_TRUE(choice.has_value());
      const GemmConfig& c = choice->config;
      EXPECT_EQ(kind == Conv::fprop ? c.operands.load_bytes_a : c.operands.load_bytes_b, grain);
      EXPECT_EQ(copies_unaligned(c), grain < 16);
      EXPECT_EQ(has_map_a(c), kind == Conv::wgrad);
      EXPECT_EQ(has_map_b(c), kind == Conv::fprop && grain == 16);
    }
    const GemmProblem stem = problem(layer(kind, 3, 64));
    EXPECT_FALSE(serves(stem, "sm90 64x64"));
    EXPECT_FALSE(serves(stem, "sm90 256x128 gather")) << "too many registers";
    EXPECT_FALSE(serves(problem(layer(kind, 3, 64), 1, DType::f32), "sm90 64x64 gather"));
    // Numbers of 16 bits, and of 32.
    ConvLayout wide = layer(kind, 3, 64);
    wide.axes[2].size = 1 << 14;
    EXPECT_FALSE(serves(problem(wide), "sm90 64x64 gather"));
    wide.axes[2].size = 1 << 13;
    EXPECT_TRUE(serves(problem(wide), "sm90 64x64 gather"));
    GemmProblem apart = problem(wide);
    (kind == Conv::fprop ? apart.a : apart.b).stride_row = 1 << 14;
    EXPECT_FALSE(serves(apart, "sm90 64x64 gather"));
    ConvLayout deep = layer(kind, 3, 64);
    deep.axes[0] = deep.axes[1];
    EXPECT_FALSE(serves(problem(deep), "sm90 64x64 gather"));
    deep.images = 0;
    EXPECT_FALSE(serves(problem(deep), "sm90 64x64 gather"));
    // Taps further apart than the image is high, over its padding.
    ConvLayout apart_taps = layer(kind, 30, 64);
    apart_taps.axes[1] = {.size = 16, .filter = 2, .pad_begin = 4000, .dilation = 4000};
    apart_taps.axes[2] = {.size = 16000, .filter = 1};
    EXPECT_FALSE(serves(problem(apart_taps), "sm90 64x64 gather"));
    // Pixels that far out in the padding.
    ConvLayout padded = layer(kind, 30, 64);
    padded.axes[1].pad_end = 40000;
    EXPECT_FALSE(serves(problem(padded), "sm90 64x64 gather"));
  }
  EXPECT_FALSE(serves(problem(layer(Conv::wgrad, 3, 60)), "sm90 64x64 gather")) << "dy comes by TMA";
  EXPECT_TRUE(serves(problem(layer(Conv::fprop, 3, 60)), "sm90 64x64 gather"));
}

TEST(ConvChoice, ClassesSideBySide) {
  const GemmProblem p = problem(layer(Conv::dgrad, 8, 64));
  for (const char* spec : {"sm90 128x64 side_by_side gather", "portable 64x64 side_by_side"}) {
    const auto choice = choose(p, spec);
    ASSERT_TRUE(choice.has_value()) << spec;
    EXPECT_EQ(choice->problem.m, 8 * 14 * 14);
    EXPECT_EQ(choice->problem.n, 4 * 8);
    EXPECT_EQ(choice->problem.k, 4 * 64);
    EXPECT_EQ(choice->schedule.k_blocks, 4u);
    EXPECT_EQ(choice->config.conv.class_capacity, 1u);
    EXPECT_EQ(choice->config.schedule.grouping, Grouping::none);
    EXPECT_FALSE(choice->config.store.by_tma);
  }
  EXPECT_FALSE(serves(p, "sm90 128x64 side_by_side")) << "TMA cannot fetch such filters";
  EXPECT_FALSE(serves(p, "portable 64x64 side_by_side gather"));
}

/// A patch embedding's layer.
ConvLayout embedding(int32_t patch, int32_t size = 224, int64_t channels = 3, int64_t filters = 768) {
  const ConvAxis axis{.size = size, .filter = patch, .stride = patch};
  return {.kind = Conv::dgrad, .images = 64, .channels = channels, .filters = filters, .axes = {kNone, axis, axis}};
}

TEST(ConvChoice, PatchesAreOneProduct) {
  for (const char* spec : {"sm90 128x256 side_by_side", "sm90 128x128 side_by_side pingpong",
                           "sm90 128x128 multicast 2x1 side_by_side", "portable 128x128 side_by_side"}) {
    const auto choice = choose(problem(embedding(16)), spec);
    ASSERT_TRUE(choice.has_value()) << spec;
    EXPECT_EQ(choice->problem.m, 64 * 14 * 14);
    EXPECT_EQ(choice->problem.n, 768);
    EXPECT_EQ(choice->problem.k, 768);
    EXPECT_TRUE(choice->config.conv.patches);
    EXPECT_EQ(choice->config.operands.load_bytes_b, 16u);
    EXPECT_EQ(choice->config.store.run_bytes, has_tma(choice->config.family) ? 16u : 0u);
    EXPECT_EQ(choice->config.schedule.grouping, Grouping::none);
  }
  EXPECT_FALSE(serves(problem(embedding(16)), "sm90 128x128 side_by_side gather"));
  EXPECT_FALSE(serves(problem(embedding(1)), "sm90 128x128 side_by_side")) << "one class";
  for (const int32_t patch : {4, 16, 32}) {
    const Cheapest best = cheapest(problem(embedding(patch)), h100(), Kernels::all);
    ASSERT_TRUE(best.choice.has_value());
    EXPECT_TRUE(best.choice->config.conv.patches) << patch;
    EXPECT_EQ(best.choice->config.family, KernelFamily::sm90) << patch;
  }
}

TEST(ConvChoice, RunsOfPatches) {
  const auto run_bytes = [](const GemmProblem& p) {
    return choose(p, "sm90 128x128 side_by_side").value().config.store.run_bytes;
  };
  EXPECT_EQ(run_bytes(problem(embedding(4))), 8u) << "12 channels of 4 pixels";
  EXPECT_EQ(run_bytes(problem(embedding(2, 224, 4))), 16u);
  EXPECT_EQ(run_bytes(problem(embedding(2, 225, 4))), 8u) << "the last pixel is alone";
  EXPECT_EQ(run_bytes(problem(embedding(2, 57, 384))), 16u);
  GemmProblem p = problem(embedding(4));
  p.d.alignment = 4;
  EXPECT_EQ(run_bytes(p), 4u);
  p.d.alignment = 2;
  EXPECT_EQ(run_bytes(p), 0u);
  p = problem(embedding(4));
  p.d.stride_row = 8;
  EXPECT_EQ(run_bytes(p), 0u) << "pixels apart";
  p = problem(embedding(4));
  p.has_c = true;
  EXPECT_EQ(run_bytes(p), 0u);
  EXPECT_EQ(run_bytes(implicit_gemm(embedding(4), 1, DType::f16, DType::f32)), 0u);
}

TEST(ConvChoice, FiltersOfPatchesNeedAlignmentAsWholes) {
  EXPECT_FALSE(serves(problem(embedding(14)), "sm90 128x128 side_by_side"));
  const auto choice = choose(problem(embedding(14)), "portable 128x128 side_by_side");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.operands.load_bytes_b, 8u);
}

// Each pixel of the image is in the class of one part.
TEST(ConvChoice, ManyClassesAreSeveralLaunches) {
  ConvLayout conv = layer(Conv::dgrad, 16, 24);
  conv.axes[1] = {.size = 40, .filter = 5, .stride = 12, .pad_begin = 1};
  conv.axes[2] = {.size = 10, .filter = 12, .stride = 11};
  const GemmProblem p = problem(conv);
  EXPECT_FALSE(serves(p, "sm90 128x128"));
  const Spec spec = parse_spec("portable 64x64").value();
  const auto first = make_choice(p, h100(), spec);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->parts, 2u) << "12 x 10 residues have pixels";
  uint32_t rows = 0, classes = 0;
  for (uint32_t part = 0; part < first->parts; ++part) {
    const auto choice = make_choice(p, h100(), spec, part);
    ASSERT_TRUE(choice.has_value());
    const ConvClasses of_part = deal_classes(choice->config, choice->geometry);
    EXPECT_LE(of_part.list.size(), kMostClasses);
    EXPECT_TRUE(std::ranges::is_sorted(of_part.list, is_deeper));
    classes += uint32_t(of_part.list.size());
    for (const ConvClass& c : of_part.list) rows += c.rows;
  }
  EXPECT_EQ(classes, 120u);
  EXPECT_EQ(rows, p.m);
  EXPECT_EQ(first->predicted_us, 0);
  EXPECT_EQ(cheapest(p, h100(), Kernels::all).choice->parts, 2u);
}

TEST(ConvChoice, WhatCannotBeSideBySide) {
  const std::string sm90 = "sm90 128x64 side_by_side gather";
  const std::string portable = "portable 64x64 side_by_side";
  const auto expect_refused = [&](const GemmProblem& p) {
    EXPECT_FALSE(serves(p, sm90));
    EXPECT_FALSE(serves(p, portable));
  };
  expect_refused(problem(layer(Conv::fprop, 8, 64)));
  expect_refused(problem(layer(Conv::wgrad, 8, 64)));
  expect_refused(problem(layer(Conv::dgrad, 8, 64), 2));
  ConvLayout conv = layer(Conv::dgrad, 8, 64);
  conv.axes[1].stride = conv.axes[2].stride = 1;
  expect_refused(problem(conv));
  conv.axes[2].stride = 9;
  expect_refused(problem(conv));
  conv.axes[2].stride = 2;
  conv.axes[2].dilation = 3;
  expect_refused(problem(conv));
  conv.axes[2].dilation = 2;
  EXPECT_TRUE(serves(problem(conv), sm90));
  // Out of reach of im2col, but not of threads.
  conv.axes[2] = {.size = 800, .filter = 2, .stride = 2, .pad_begin = 300, .pad_end = 300};
  EXPECT_FALSE(serves(problem(conv), sm90));
  EXPECT_TRUE(serves(problem(conv), portable));
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

TEST(ConvChoice, TilesOfClassesAreExact) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    ConvLayout conv = draw_geometry(random);
    conv.kind = Conv::dgrad;
    conv.channels = random.number(1, 300);
    conv.filters = random.number(1, 300);
    SCOPED_TRACE(text(conv));
    const auto choice = choose(problem(conv), "portable 64x64");
    ASSERT_TRUE(choice.has_value());
    uint32_t tiles = 0, line = 0, deepest = 0;
    for (const ConvClass& c : conv_classes(conv)) {
      const uint32_t of_class = ceil_div(c.rows, 64u);
      const uint32_t depth = ceil_div(c.taps.size * uint32_t(conv.filters), 64u);
      tiles += of_class;
      line += of_class * depth;
      deepest = std::max(deepest, depth);
    }
    const auto across = uint32_t(ceil_div<int64_t>(conv.channels, 64));
    ASSERT_EQ(choice->schedule.tiles_m, tiles);
    ASSERT_EQ(choice->most_tiles, tiles * across);
    if (choice->config.schedule.grouping == Grouping::classes) {
      ASSERT_EQ(choice->schedule.line, line * across);
    } else {
      ASSERT_EQ(choice->schedule.k_blocks, deepest);
    }
    // No more slices than the deepest class has k blocks.
    const auto sliced = choose(problem(conv), "portable 64x64 serial 1000");
    ASSERT_TRUE(sliced.has_value());
    ASSERT_EQ(sliced->schedule.slices, std::max(deepest, 1u));
  }
}

TEST(ConvChoice, StreamKCutsWhatHasBlocks) {
  ConvLayout conv = layer(Conv::dgrad);
  conv.axes[1].filter = conv.axes[2].filter = 1;
  conv.axes[1].pad_begin = conv.axes[2].pad_begin = 0;
  const auto choice = choose(problem(conv), "sm90 128x128 stream_k 1");
  ASSERT_TRUE(choice.has_value());
  const auto of_class = uint32_t(ceil_div<int64_t>(8 * 14 * 14, 128));
  EXPECT_EQ(choice->most_tiles, 4 * of_class) << "with three classes that only store";
  EXPECT_EQ(choice->schedule.stream_tiles, of_class);
  EXPECT_EQ(choice->schedule.line, of_class * (256 / 64));
}

// A single class that only stores: the walk must still know that it is one.
TEST(ConvChoice, NoTapAtAll) {
  const GemmProblem p =
      problem(along_width(Conv::dgrad, {.size = 1, .filter = 1, .stride = 4, .pad_begin = 1, .pad_end = 2}));
  ASSERT_EQ(conv_classes(p.conv).size(), 1u);
  ASSERT_EQ(conv_classes(p.conv)[0].taps.size, 0u);
  for (const char* spec : {"sm90 128x128", "portable 64x64", "sm90 128x128 stream_k 1"}) {
    const auto choice = choose(p, spec);
    ASSERT_TRUE(choice.has_value()) << spec;
    EXPECT_EQ(choice->config.schedule.grouping, Grouping::classes);
    EXPECT_EQ(choice->schedule.line, 0u);
    EXPECT_GT(choice->blocks, 0u);
  }
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

bool any(const std::vector<Choice>& choices, bool (*of)(const Spec&)) {
  return std::any_of(choices.begin(), choices.end(), [&](const Choice& choice) { return of(choice.spec); });
}

bool gathers(const Spec& spec) {
  return spec.gather;
}

bool is_portable(const Spec& spec) {
  return spec.family == KernelFamily::portable;
}

TEST(ConvCandidates, FewChannelsHaveMore) {
  for (const Conv kind : kConvs) {
    EXPECT_TRUE(any(candidates(problem(layer(kind, 32, 64)), h100()), gathers));
    EXPECT_FALSE(any(candidates(problem(layer(kind, 40, 64)), h100()), gathers));
  }
}

TEST(ConvCandidates, ArePortableWhereHopperServesNone) {
  EXPECT_FALSE(any(candidates(problem(layer(Conv::dgrad)), h100()), is_portable));
  for (const Choice& choice : candidates(problem(layer(Conv::dgrad, 3, 64)), h100()))
    EXPECT_TRUE(is_portable(choice.spec));
  const DeviceInfo a100 = model_device("sm_80");
  for (const Conv kind : kConvs) {
    const auto all = candidates(problem(layer(kind)), a100);
    EXPECT_FALSE(all.empty());
    for (const Choice& choice : all) EXPECT_TRUE(is_portable(choice.spec));
  }
}

TEST(ConvCandidates, AreNoneWhereHopperIsAskedForInVain) {
  GemmProblem p = problem(layer(Conv::dgrad, 3, 64));
  p.kernel = KernelFamily::sm90;
  EXPECT_TRUE(candidates(p, h100()).empty());
}

// Every convolution has a kernel, and a name brings back the candidate that has it.
TEST(ConvCandidates, ServeEveryGeometry) {
  Random random(2);
  for (int round = 0; round < 150; ++round) {
    ConvLayout conv = draw_geometry(random);
    conv.kind = random.pick(kConvs);
    conv.channels = random.coin() ? random.number(1, 40) : 8 * random.number(1, 20);
    conv.filters = 8 * random.number(1, 20);
    if (output_pixels(conv) == 0) continue;
    constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};
    const GemmProblem p = problem(conv, random.number(1, 3), random.pick(kTypes));
    SCOPED_TRACE(text(conv));
    const auto all = candidates(p, h100());
    ASSERT_FALSE(all.empty());
    for (const Choice& choice : all) {
      const std::string name = to_string(choice.spec);
      ASSERT_EQ(parse_spec(name), choice.spec) << name;
      const auto again = make_choice(p, h100(), choice.spec);
      ASSERT_TRUE(again.has_value()) << name;
      ASSERT_EQ(again->config, choice.config) << name;
      ASSERT_GT(choice.blocks, 0u) << name;
      ASSERT_GT(choice.predicted_us, 0) << name;
    }
  }
}

TEST(Spec, OfConvolutionsInWords) {
  const Spec stem{.tile_m = 64, .tile_n = 32, .gather = true};
  EXPECT_EQ(to_string(stem), "sm90 64x32 gather");
  const Spec columns{
      .tile_n = 64, .fuses_classes = true, .gather = true, .split = SplitKMode::parallel, .slices = 8, .cluster_k = 2};
  EXPECT_EQ(to_string(columns), "sm90 128x64 side_by_side gather parallel 8 clusters 2");
  for (const Spec& spec : {stem, columns}) EXPECT_EQ(parse_spec(to_string(spec)), spec);
  EXPECT_EQ(parse_spec("sm90 128x64 clusters 2 parallel 8 gather side_by_side"), columns);
}

TEST(Spec, EveryOneComesBack) {
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    constexpr KernelFamily kFamilies[] = {KernelFamily::sm90, KernelFamily::portable};
    constexpr SplitKMode kSplits[] = {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster,
                                      SplitKMode::stream_k};
    Spec spec{.family = random.pick(kFamilies),
              .transposed = random.coin(),
              .tile_m = uint32_t(random.number(1, 512)),
              .tile_n = uint32_t(random.number(1, 512)),
              .pingpong = random.coin(),
              .fuses_classes = random.coin(),
              .gather = random.coin(),
              .multicast_m = uint32_t(random.number(1, 2)),
              .multicast_n = uint32_t(random.number(1, 2)),
              .split = random.pick(kSplits)};
    if (spec.split != SplitKMode::none) spec.slices = uint32_t(random.number(1, 200));
    if (spec.split == SplitKMode::parallel) spec.cluster_k = uint32_t(random.number(1, 8));
    ASSERT_EQ(parse_spec(to_string(spec)), spec) << to_string(spec);
  }
}

TEST(Spec, RefusesOtherWords) {
  for (const char* words :
       {"", "sm90", "sm90 128", "sm90 128y64", "sm91 128x64", "128x64 sm90", "sm90 128x64 gathers",
        "sm90 128x64 side_by_side 2", "sm90 128x64 multicast", "sm90 128x64 parallel", "sm90 128x64 clusters"})
    EXPECT_FALSE(parse_spec(words).has_value()) << words;
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

TEST(ConvChoice, ClassesSideBySideAreNotShared) {
  const GemmProblem p = implicit_gemm(layer(Conv::dgrad, 8, 64), 1, DType::f16, DType::f16);
  EXPECT_FALSE(serves(p, "sm90 128x64 side_by_side gather multicast 1x2"));
  EXPECT_FALSE(serves(p, "sm90 128x128 side_by_side gather multicast 2x1"));
}

}  // namespace
}  // namespace cleave
