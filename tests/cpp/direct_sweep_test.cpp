// Convolutions line by line down the images by WGMMA: which are served, that warpgroups make each pixel once, by all
// that it meets, and that the kernels spill nothing.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "cleave/config/direct_sweep.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv/column_share.h"
#include "cleave/epilogue.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/choice/spec.h"
#include "plan/direct/choice.h"

namespace cleave {
namespace {

GemmProblem images(Conv kind, int64_t channels, int64_t filters, const ConvAxis& height, const ConvAxis& width,
                   const ConvAxis& depth = kNone, int64_t count = 3) {
  GemmProblem p = problem(
      {.kind = kind, .images = count, .channels = channels, .filters = filters, .axes = {depth, height, width}});
  p.kernel = KernelFamily::direct;
  return p;
}
ConvAxis plain(int32_t size, int32_t taps) {
  return {.size = size, .filter = taps, .pad_begin = taps / 2, .pad_end = taps / 2};
}
ConvAxis drawn(Random& random, int32_t most) {
  ConvAxis axis{.size = int32_t(random.number(1, most)), .filter = int32_t(random.number(1, 4))};
  axis.pad_begin = int32_t(random.number(0, 4));
  axis.pad_end = int32_t(random.number(0, 3));
  return axis;
}

TEST(DirectSweep, WarpgroupsMakeEachPixelOnceOfAllThatItMeets) {
  Random random(23);
  int served = 0;
  for (int round = 0; round < 120; ++round) {
    const Conv kind = random.coin() ? Conv::fprop : Conv::dgrad;
    const GemmProblem p =
        images(kind, 32, 32, drawn(random, 9), drawn(random, 80), random.coin() ? drawn(random, 4) : kNone);
    const auto choice = choose(p, "direct 64x32 ahead 1");
    if (!choice) continue;
    ++served;
    SCOPED_TRACE(text(p.conv));
    const GemmConfig& c = choice->config;
    const DirectShape shape = direct_shape(*choice);
    const uint32_t across = c.direct.width.taps, down = c.direct.height.taps;
    std::map<std::pair<int64_t, int64_t>, int64_t> wanted;  // by what is made and tap
    for_each_meeting(p.conv, [&](int64_t x, int64_t tap, int64_t y) {
      kind == Conv::fprop ? wanted[{y, tap}] = x : wanted[{x, tap}] = y;
    });
    std::set<int64_t> made;
    size_t met = 0;
    for (uint32_t warpgroup = 0; warpgroup < choice->blocks / shape.blocks.divisor * kSweepGroups; ++warpgroup) {
      uint32_t turns = 0;
      walk_columns(shape, warpgroup, [&](uint32_t number, uint32_t first, uint32_t lines) {
        const SweepColumn column = sweep_column(shape, number);
        turns += (lines + down - 1) * c.direct.depth.taps;
        for (uint32_t row = 0; row < kSweepRows; ++row) {
          const SweepPlace place = sweep_place(c, shape, row);
          const uint32_t plane = column.plane + place.beside, made_x = column.x0 + place.x;
          if (made_x >= shape.made[1] || place.beside >= shape.together || plane >= shape.images) continue;
          for (uint32_t i = 0; i < lines; ++i) {
            const int64_t pixel = pixel_number(int64_t(plane), first + i, made_x, shape.made);
            EXPECT_TRUE(made.insert(pixel).second);
            for (uint32_t d = 0; d < c.direct.depth.taps; ++d) {
              const int32_t z = int32_t(column.z + d) - shape.pad_depth;
              if (c.direct.depth.taps > 1 && !is_inside(z, shape.met_depth)) continue;
              const int64_t gathered_plane =
                  c.direct.depth.taps == 1 ? int64_t(plane) : int64_t(column.image) * shape.met_depth + z;
              for (uint32_t line = 0; line < down; ++line) {
                // Block `line` of a gathered line's columns ends so many lines further on.
                const int32_t y = int32_t(first + i + line) - shape.pad[0];
                for (uint32_t tap = 0; tap < across; ++tap) {
                  const SweepPlace at = sweep_place(c, shape, row + tap);
                  ASSERT_EQ(at.beside, place.beside);
                  const int32_t x = int32_t(column.x0 + at.x) - shape.pad[1];
                  if (!is_inside(y, shape.gathered[0]) || !is_inside(x, shape.gathered[1])) continue;
                  const auto found = wanted.find({pixel, sweep_tap(c, d, line, tap)});
                  ASSERT_NE(found, wanted.end());
                  ASSERT_EQ(found->second, pixel_number(gathered_plane, y, x, shape.gathered));
                  ++met;
                }
              }
            }
          }
        }
      });
      EXPECT_EQ(sweep_turns(c, shape, warpgroup), turns) << "the other one waits for as many";
    }
    EXPECT_EQ(int64_t(made.size()), shape.made[0] * shape.made[1] * int64_t(shape.images));
    EXPECT_EQ(met, wanted.size());
  }
  EXPECT_GT(served, 60);
}

TEST(DirectSweep, ShortLinesLieBesideEachOther) {
  const auto together = [](int32_t size) {
    return direct_shape(*choose(images(Conv::fprop, 64, 64, plain(size, 3), plain(size, 3)), "direct 64x64 ahead 1"))
        .together;
  };
  EXPECT_EQ(together(64), 1u);
  EXPECT_EQ(together(56), 1u);
  EXPECT_EQ(together(28), 2u);
  EXPECT_EQ(together(14), 4u);
  EXPECT_EQ(together(7), 7u);
}

TEST(DirectSweep, ServesWhatItsSharedMemoryAndColumnsHold) {
  const auto cut = [](Conv kind, int64_t channels, int64_t filters, int32_t taps, const char* spec,
                      const ConvAxis& depth = kNone) {
    return serves(images(kind, channels, filters, plain(56, taps), plain(56, taps), depth), spec);
  };
  EXPECT_TRUE(cut(Conv::fprop, 64, 64, 3, "direct 64x64 ahead 2"));
  EXPECT_TRUE(cut(Conv::dgrad, 64, 128, 3, "direct 64x64 ahead 1")) << "128 channels are gathered";
  EXPECT_TRUE(cut(Conv::fprop, 64, 64, 3, "direct 64x32 ahead 2", plain(9, 3)));
  EXPECT_TRUE(cut(Conv::fprop, 64, 72, 5, "direct 64x32 ahead 1"));
  EXPECT_FALSE(cut(Conv::fprop, 64, 64, 5, "direct 64x64 ahead 1")) << "320 columns";
  EXPECT_FALSE(cut(Conv::fprop, 64, 64, 3, "direct 64x64 ahead 2", plain(9, 3))) << "216 KB of filters";
  for (const int64_t channels : {16, 24, 40, 48, 96, 112, 128}) {
    EXPECT_TRUE(cut(Conv::fprop, channels, 64, 3, "direct 64x64 ahead 1")) << channels;
    EXPECT_TRUE(cut(Conv::dgrad, 64, channels, 3, "direct 64x64 ahead 1")) << channels;
  }
  EXPECT_TRUE(cut(Conv::fprop, 192, 64, 3, "direct 64x32 ahead 1"));
  EXPECT_FALSE(cut(Conv::fprop, 200, 64, 3, "direct 64x32 ahead 1"));
  EXPECT_FALSE(cut(Conv::fprop, 60, 64, 3, "direct 64x64 ahead 1"));
  EXPECT_FALSE(cut(Conv::fprop, 64, 60, 3, "direct 64x64 ahead 1"));
  for (const char* spec : {"direct 128x64 ahead 1", "direct 64x48 ahead 1", "direct 64x64 ahead 9"})
    EXPECT_FALSE(cut(Conv::fprop, 64, 64, 3, spec)) << spec;
  const ConvAxis strided{.size = 56, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  EXPECT_FALSE(serves(images(Conv::fprop, 64, 64, strided, strided), "direct 64x64 ahead 1"));
  const GemmProblem p = images(Conv::fprop, 64, 64, plain(56, 3), plain(56, 3));
  EXPECT_FALSE(make_choice(p, model_device("sm_80"), *parse_spec("direct 64x64 ahead 1")));
}

TEST(DirectSweep, SpillsNothing) {
  std::set<std::string> sources;
  const auto add = [&](GemmProblem p, const char* spec) {
    for (const bool finished : {false, true}) {
      if (finished) {
        p.bias = Bias::row;
        p.bias_stride_batch = 1;
        p.epilogue = epilogue_of(Activation::gelu_erf);
        p.has_c = true;
        p.c = p.d;
      }
      const auto choice = choose(p, spec);
      ASSERT_TRUE(choice) << spec;
      sources.insert(gemm_source(choice->config));
    }
  };
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    add(images(kind, 64, 64, plain(56, 3), plain(56, 3)), "direct 64x64 ahead 2");
    add(images(kind, 64, 64, plain(56, 3), plain(56, 3), plain(9, 3)), "direct 64x32 ahead 2");
    add(images(kind, 32, 32, plain(56, 3), plain(56, 3)), "direct 64x64 ahead 2");
    add(images(kind, 128, 128, plain(56, 3), plain(56, 3)), "direct 64x64 ahead 1");
    add(images(kind, 64, 64, plain(56, 5), plain(56, 5)), "direct 64x32 ahead 1");
    add(images(kind, 96, 96, plain(56, 3), plain(56, 3)), "direct 64x64 ahead 1");
    add(images(kind, 48, 48, plain(56, 3), plain(56, 3)), "direct 64x64 ahead 2");
    add(images(kind, 192, 192, plain(56, 3), plain(56, 3)), "direct 64x32 ahead 1");
  }
  EXPECT_EQ(sources.size(), 32u);
  expect_no_spills(sources, "sm_90a", 232);
}

}  // namespace
}  // namespace cleave
