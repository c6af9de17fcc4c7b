// Convolutions of narrow groups down the images: which are served, by which cuts, and that cuts have each pixel once.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "all_kernels/typical_problems.h"
#include "cleave/config/direct_columns.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "depthwise.h"
#include "direct_slices.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/spec.h"
#include "plan/direct/choice.h"
#include "plan/direct/columns.h"
#include "plan/direct/columns_wgrad.h"
#include "plan/direct/kernels.h"
#include "plan/model_device.h"

namespace cleave {
namespace {

GemmProblem square(Conv kind, int32_t taps, int32_t stride, int32_t size = 56, int64_t channels = 96) {
  const ConvAxis axis = centred_axis(size, taps, stride);
  return depthwise(kind, axis, axis, channels);
}

/// Those of all cuts that are served.
std::vector<Choice> column_choices(const GemmProblem& p) {
  std::vector<Choice> found;
  for (const uint32_t vector : {8, 4, 2, 1}) {
    for (uint32_t strip = 1; strip <= 8; ++strip) {
      for (const uint32_t ahead : {0, 1, 3}) {
        const Spec spec{
            .family = KernelFamily::direct, .tile_m = strip, .tile_n = 6 * vector, .columns = vector, .ahead = ahead};
        if (const auto choice = make_choice(p, h100(), spec)) found.push_back(*choice);
      }
    }
  }
  return found;
}

TEST(DirectColumns, TapsAreFoundFromBothSides) {
  Random random(11);
  for (int round = 0; round < 500; ++round) {
    const Conv kind = random.coin() ? Conv::fprop : Conv::dgrad;
    const ConvAxis drawn = draw_axis(random, 4);
    const DirectAxis axis{.taps = uint32_t(drawn.filter),
                          .stride = uint32_t(drawn.stride),
                          .dilation = uint32_t(drawn.dilation),
                          .phase = kind == Conv::dgrad ? uint32_t(drawn.pad_begin % drawn.stride) : 0};
    SCOPED_TRACE(to_string(kind));
    for (uint32_t j = 0; j < 8; ++j) {
      uint32_t met = 0;
      for (int32_t at = -40; at < 80; ++at) {
        const int32_t tap = tap_between(kind, axis, j, at);
        if (tap == kApart) continue;
        ++met;
        ASSERT_EQ(gathered_at(kind, axis, j, uint32_t(tap)), at);
      }
      ASSERT_EQ(met, taps_met(kind, axis, j));
    }
  }
}

/// Outputs that follow each other meet a pixel if one of its taps' does.
TEST(DirectColumns, PixelsBetweenWhatOutputsMeetAreKnown) {
  Random random(13);
  for (int round = 0; round < 500; ++round) {
    const ConvAxis drawn = draw_axis(random, 4);
    const DirectAxis axis = direct_axis(Conv::wgrad, drawn);
    const auto count = uint32_t(random.number(1, 12));
    std::set<int32_t> met;
    for (uint32_t j = 0; j < count; ++j)
      for (uint32_t tap = 0; tap < axis.taps; ++tap) met.insert(gathered_at(Conv::wgrad, axis, j, tap));
    for (int32_t at = -3; at < 99; ++at) ASSERT_EQ(is_met(axis, at, count), met.contains(at)) << at;
  }
}

TEST(DirectColumns, CutsHaveEachCellOnce) {
  Random random(5);
  size_t served = 0;
  for (int round = 0; round < 60; ++round) {
    const Conv kind = random.coin() ? Conv::fprop : Conv::dgrad;
    const ConvAxis height = draw_axis(random, 3), width = draw_axis(random, 3);
    for (const Choice& choice : column_choices(depthwise(kind, height, width, 96, 1, random.number(1, 40)))) {
      SCOPED_TRACE(text(choice.problem.conv) + " " + to_string(choice.spec));
      ++served;
      const GemmConfig& c = choice.config;
      const DirectShape shape = direct_shape(choice);
      EXPECT_GE(shape.blocks.divisor * c.tile.n, 96u);
      EXPECT_GE(shape.columns.divisor * c.tile.m, shape.made[1]);
      EXPECT_GE(shape.rows.divisor * shift_cell(kind, c.direct.height), shape.made[0]);
      EXPECT_EQ(shape.tiles % shape.rows.divisor, 0u);
      const uint32_t places = shape.tiles / shape.rows.divisor * column_places(c);
      EXPECT_GE(places, shape.images * shape.columns.divisor);
      EXPECT_LT(places - shape.images * shape.columns.divisor, column_places(c));
      // CTAs' shares: none is empty, and together they are all.
      ASSERT_EQ(choice.blocks % shape.blocks.divisor, 0u);
      const uint32_t slices = choice.blocks / shape.blocks.divisor;
      EXPECT_GE(slices * shape.steps, shape.tiles);
      EXPECT_LT((slices - 1) * shape.steps, shape.tiles);
      EXPECT_LE(column_places(c) * c.tile.n / c.direct.vector, kDirectThreads);
    }
  }
  EXPECT_GT(served, 300u);
}

TEST(DirectColumns, AStepMeetsEachLineOfACellOnce) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    for (const int32_t taps : {1, 2, 3, 5, 7}) {
      for (const int32_t stride : {1, 2, 3}) {
        for (const Choice& choice : column_choices(square(kind, taps, stride))) {
          const GemmConfig& c = choice.config;
          const DirectAxis& down = c.direct.height;
          const uint32_t lines = shift_step(kind, down), steps = column_steps(c);
          const GatheredSpan reach = shift_span(kind, down);
          EXPECT_GE(steps * lines, reach.size());
          EXPECT_LT((steps - 1) * lines, reach.size());
          uint32_t met = 0, wanted = 0;
          for (uint32_t i = 0; i < shift_cell(kind, down); ++i) {
            wanted += taps_met(kind, down, i);
            for (uint32_t line = 0; line < steps * lines; ++line)
              met += tap_between(kind, down, i, int32_t(line) + reach.first) != kApart;
          }
          EXPECT_EQ(met, wanted);
        }
      }
    }
  }
}

/// What lies behind the filters: so many lines of what each thread's strip meets, aligned to what it copies at once.
TEST(DirectColumns, RingsHaveRoomForTheirLines) {
  size_t rings = 0;
  for (const int32_t taps : {1, 3, 5}) {
    for (const Choice& choice : column_choices(square(Conv::fprop, taps, 1))) {
      const GemmConfig& c = choice.config;
      const uint32_t pixels = c.tile.m + uint32_t(taps) - 1, copied = c.direct.vector * 2,
                     filters = column_filter_bytes(c);
      EXPECT_GE(filters, pixels_filter_bytes(c));
      EXPECT_EQ(filters % 16, 0u);
      EXPECT_EQ(has_column_ring(c), choice.spec.ahead > 0);
      const uint32_t lines = choice.spec.ahead > 0 ? choice.spec.ahead + 1 : 0;
      EXPECT_EQ(smem_plan(c).bytes, filters + lines * kDirectThreads * pixels * copied);
      EXPECT_TRUE(choice.spec.ahead == 0 || copied >= 4);
      rings += lines > 0;
    }
  }
  EXPECT_GT(rings, 20u);
}

TEST(DirectColumns, RingsAreBesideShortFunctions) {
  GemmProblem p = square(Conv::fprop, 3, 1);
  for (const Activation activation : {Activation::none, Activation::relu, Activation::silu, Activation::gelu_tanh}) {
    p.epilogue = epilogue_of(activation);
    EXPECT_EQ(direct_column_rings_spec(p, h100()).has_value(), activation != Activation::gelu_tanh);
  }
}

TEST(DirectColumns, SlicesOfGradientsHaveEachCellOnce) {
  for (const int64_t group : {1, 2, 4}) {
    for (const int32_t taps : {3, 5, 7}) {
      for (const int32_t stride : {1, 2}) {
        for (const int64_t slices : {0, 1, 2, 9}) {
          const ConvAxis axis{.size = 19, .filter = taps, .stride = stride, .pad_begin = 1, .pad_end = 1};
          GemmProblem p = depthwise(Conv::wgrad, axis, axis, 160, group);
          p.split_k_slices = slices;
          const auto spec = direct_columns_wgrad_spec(p, h100());
          if (group * group * taps * taps > 60) {
            EXPECT_FALSE(spec);
            continue;
          }
          ASSERT_TRUE(spec) << group << " " << taps;
          const auto choice = make_choice(p, h100(), *spec);
          ASSERT_TRUE(choice);
          expect_slices(*choice, 0);
          const DirectShape shape = direct_shape(*choice);
          EXPECT_EQ(choice->blocks, shape.blocks.divisor * choice->spec.slices);
          EXPECT_GE(choice->spec.slices * shape.steps, shape.tiles);
          EXPECT_LT((choice->spec.slices - choice->spec.cluster_k) * shape.steps, shape.tiles);
          EXPECT_GE(shape.blocks.divisor * choice->config.tile.n, 160u);
        }
      }
    }
  }
}

TEST(DirectColumns, SpillsNothing) {
  std::set<std::string> sources;
  const auto add = [&](const GemmProblem& p) {
    const auto spec = direct_columns_spec(p, h100()), rings = direct_column_rings_spec(p, h100());
    ASSERT_TRUE(spec);
    sources.insert(gemm_source(make_choice(p, h100(), *spec)->config));
    if (rings) sources.insert(gemm_source(make_choice(p, h100(), *rings)->config));
  };
  const auto add_cut = [&](const GemmProblem& p, const char* cut) {
    const auto choice = make_choice(p, h100(), *parse_spec(cut));
    ASSERT_TRUE(choice) << cut;
    sources.insert(gemm_source(choice->config));
  };
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    for (const char* cut : {"direct 5x32 columns 4 ahead 1", "direct 4x32 columns 4 ahead 2"})
      add_cut(square(kind, 3, 1), cut);
    for (const char* cut : {"direct 2x32 columns 4 ahead 2", "direct 4x32 columns 2 ahead 2"})
      add_cut(square(kind, 3, 2), cut);
    add_cut(square(kind, 5, 1), "direct 4x32 columns 2 ahead 8");
    for (const int32_t taps : {3, 5, 7}) {
      for (const int32_t stride : {1, 2}) {
        GemmProblem p = square(kind, taps, stride);
        add(p);
        if (stride > 1) continue;
        for (const Activation activation : {Activation::relu, Activation::silu}) {
          p.epilogue = epilogue_of(activation);
          add(p);
        }
        p.bias = Bias::row;
        p.bias_stride_batch = 1;
        p.epilogue = epilogue_of(Activation::gelu_erf);
        p.has_c = true;
        add(p);
        if (taps == 3) add_cut(p, "direct 3x32 columns 4 ahead 3");
        add(typical::with_function(square(kind, taps, stride)));
      }
    }
    const ConvAxis axis{.size = 56, .filter = 3, .pad_begin = 1, .pad_end = 1};
    for (const int64_t group : {2, 4}) add(depthwise(kind, axis, axis, 96, group));
  }
  EXPECT_GE(sources.size(), 36u);
  for (const char* arch : {"sm_80", "sm_90a"}) expect_no_spills(sources, arch, 128);
}

TEST(DirectColumns, GradientsSpillNothing) {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const DeviceInfo device = model_device(arch);
    std::set<std::string> sources;
    for (const int32_t taps : {3, 5, 7}) {
      for (const int32_t stride : {1, 2}) {
        const GemmProblem p = square(Conv::wgrad, taps, stride);
        const auto spec = direct_columns_wgrad_spec(p, device);
        ASSERT_TRUE(spec);
        sources.insert(gemm_source(make_choice(p, device, *spec)->config));
      }
    }
    for (const char* cut : {"direct 6x64 columns 1", "direct 8x32 columns 2", "direct 4x64 columns 2"})
      sources.insert(gemm_source(make_choice(square(Conv::wgrad, 3, 1), device, *parse_spec(cut))->config));
    EXPECT_GE(sources.size(), 8u);
    expect_no_spills(sources, arch, 128);
  }
}

TEST(DirectColumns, CutsOfATunedFileMayBeAnything) {
  const GemmProblem p = square(Conv::fprop, 3, 1);
  for (const char* cut : {"direct 4x32 columns 4", "direct 4x32 columns 4 ahead 2", "direct 4x32 columns 2 ahead 8"})
    EXPECT_TRUE(serves(p, cut)) << cut;
  for (const char* cut : {"direct 0x32 columns 4", "direct 9x32 columns 2", "direct 4x0 columns 4",
                          "direct 4x30 columns 4", "direct 4x4096 columns 4", "direct 4x32 columns 3",
                          "direct 4x32 columns 16", "direct 4x32 columns 4 parallel 2", "sm90 128x64 columns 4",
                          "direct 4x32 columns 4 ahead 9", "direct 4x32 columns 1 ahead 2", "sm90 128x64 ahead 2"})
    EXPECT_FALSE(serves(p, cut)) << cut;
  EXPECT_FALSE(serves(square(Conv::dgrad, 3, 2), "direct 3x32 columns 2")) << "half a cell along the line";
  const GemmProblem back = square(Conv::wgrad, 3, 1);
  EXPECT_TRUE(serves(back, "direct 4x32 columns 2 parallel 2"));
  for (const char* cut :
       {"direct 4x32 columns 2 serial 2", "direct 9x32 columns 1", "direct 4x32 columns 2 parallel 100000",
        "direct 4x4096 columns 2", "direct 4x32 columns 2 ahead 2"})
    EXPECT_FALSE(serves(back, cut)) << cut;
}

/// As chosen for an H200, whose times the models were fitted to.
Spec chosen(const GemmProblem& p) {
  static const DeviceInfo h200 = device_info(kPlanOnlyH200);
  return cheapest(p, h200, Kernels::all).choice->spec;
}
bool takes_columns(const GemmProblem& p) {
  return chosen(p).columns > 0;
}

TEST(DirectColumns, AreChosenWhereTheyWereFaster) {
  const auto layer = [](Conv kind, int64_t images, int32_t size, int64_t channels, int32_t taps, int32_t stride = 1) {
    const ConvAxis axis = centred_axis(size, taps, stride);
    return depthwise(kind, axis, axis, channels, 1, images);
  };
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    EXPECT_TRUE(takes_columns(layer(kind, 54, 47, 672, 3)));
    EXPECT_TRUE(takes_columns(layer(kind, 121, 47, 336, 5)));
    EXPECT_TRUE(takes_columns(layer(kind, 1, 56, 128, 7)));
    EXPECT_TRUE(takes_columns(layer(kind, 64, 28, 192, 7)));
    EXPECT_TRUE(takes_columns(layer(kind, 64, 28, 240, 5)));
    EXPECT_TRUE(takes_columns(layer(kind, 64, 14, 960, 3)));
    EXPECT_TRUE(takes_columns(layer(kind, 64, 7, 1152, 5))) << "at once: 13.6 us where rows of strips took 14.9";
    EXPECT_FALSE(takes_columns(layer(kind, 64, 7, 768, 7)));
  }
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) EXPECT_TRUE(takes_columns(layer(kind, 64, 14, 672, 5, 2)));
}

TEST(DirectColumns, AreInRingsWhereThoseWereFaster) {
  const auto takes_ring = [](Conv kind, int64_t images, int32_t size, int64_t channels, int32_t taps,
                             int32_t stride = 1) {
    const ConvAxis axis = centred_axis(size, taps, stride);
    return chosen(depthwise(kind, axis, axis, channels, 1, images)).ahead > 0;
  };
  EXPECT_TRUE(takes_ring(Conv::fprop, 40, 45, 576, 3));
  EXPECT_TRUE(takes_ring(Conv::fprop, 24, 49, 480, 3));
  EXPECT_TRUE(takes_ring(Conv::dgrad, 6, 47, 768, 3));
  EXPECT_FALSE(takes_ring(Conv::fprop, 70, 45, 320, 5));
  EXPECT_FALSE(takes_ring(Conv::fprop, 30, 56, 160, 3, 2));
  EXPECT_FALSE(takes_ring(Conv::dgrad, 3, 14, 448, 3));
  EXPECT_FALSE(takes_ring(Conv::fprop, 3, 7, 1024, 3));
}

TEST(DirectColumns, LeaveWhatReachesTooFar) {
  const ConvAxis axis{.size = 65, .filter = 3, .pad_begin = 18, .pad_end = 18, .dilation = 18};
  EXPECT_FALSE(direct_columns_spec(depthwise(Conv::fprop, axis, axis), h100()));
  ConvAxis nearer = axis;
  nearer.dilation = 15;
  EXPECT_TRUE(direct_columns_spec(depthwise(Conv::fprop, nearer, nearer), h100()));
}

}  // namespace
}  // namespace cleave
