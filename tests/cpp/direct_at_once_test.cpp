// Convolutions of narrow groups of small images: which are served, that cuts have each pixel once, and that every pixel
// of a strip meets its taps.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "all_kernels/typical_problems.h"
#include "cleave/config/direct_at_once.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "depthwise.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/spec.h"
#include "plan/direct/at_once.h"
#include "plan/direct/choice.h"

namespace cleave {
namespace {

GemmProblem square(Conv kind, int32_t taps, int32_t stride, int32_t size = 14, int64_t channels = 96,
                   int64_t images = 3) {
  const ConvAxis axis = centred_axis(size, taps, stride);
  return depthwise(kind, axis, axis, channels, 1, images);
}

/// Those of all cuts that are served.
std::vector<Choice> cuts_of(const GemmProblem& p) {
  std::vector<Choice> found;
  for (const uint32_t vector : {4, 2, 1}) {
    for (uint32_t strip = 1; strip <= 8; ++strip) {
      const Spec spec{
          .family = KernelFamily::direct, .tile_m = strip, .tile_n = 16 * vector, .columns = vector, .at_once = true};
      if (const auto choice = make_choice(p, h100(), spec)) found.push_back(*choice);
    }
  }
  return found;
}

TEST(DirectAtOnce, ThreadsMakeEachPixelOnceOfAllThatItMeets) {
  Random random(5);
  int served = 0;
  for (int round = 0; round < 60; ++round) {
    const Conv kind = random.coin() ? Conv::fprop : Conv::dgrad;
    const GemmProblem p = depthwise(kind, draw_axis(random, 3), draw_axis(random, 3), 40, 1, random.number(1, 5));
    std::map<std::pair<int64_t, int64_t>, int64_t> wanted;
    for_each_meeting(p.conv, [&](int64_t x, int64_t tap, int64_t y) {
      kind == Conv::fprop ? wanted[{y, tap}] = x : wanted[{x, tap}] = y;
    });
    for (const Choice& choice : cuts_of(p)) {
      ++served;
      SCOPED_TRACE(text(p.conv) + ": " + to_string(choice.spec));
      const GemmConfig& c = choice.config;
      const DirectShape shape = direct_shape(choice);
      EXPECT_GE(shape.blocks.divisor * c.tile.n, shape.channels);
      ASSERT_EQ(choice.blocks % shape.blocks.divisor, 0u);
      const GatheredSpan span = gathered_span(kind, c.direct.width, c.tile.m);
      std::set<int64_t> made;
      size_t met = 0;
      for (uint32_t strip = 0; strip < choice.blocks / shape.blocks.divisor * column_places(c); ++strip) {
        uint32_t above = 0, along = 0, image = 0, line = 0;
        shape.columns.divmod(strip, above, along);
        shape.rows.divmod(above, image, line);
        if (image >= shape.images) continue;
        const uint32_t column = along * c.tile.m;
        const int32_t x0 = first_gathered(kind, c.direct.width, column, shape.pad[1]) + span.first;
        for (uint32_t j = 0; j < c.tile.m && column + j < shape.made[1]; ++j) {
          const int64_t pixel = pixel_number(int64_t(image), line, column + j, shape.made);
          EXPECT_TRUE(made.insert(pixel).second);
          for (uint32_t r = 0; r < c.direct.height.taps; ++r) {
            const int32_t y = gathered_at(kind, c.direct.height.map(shape.pad[0]), line, r);
            for (uint32_t i = 0; i < span.size(); ++i) {
              const int32_t s = tap_between(kind, c.direct.width, j, int32_t(i) + span.first);
              const int32_t x = x0 + int32_t(i);
              if (s == kApart || !is_inside(y, shape.gathered[0]) || !is_inside(x, shape.gathered[1])) continue;
              const auto found = wanted.find({pixel, r * c.direct.width.taps + uint32_t(s)});
              ASSERT_NE(found, wanted.end());
              ASSERT_EQ(found->second, pixel_number(int64_t(image), y, x, shape.gathered));
              ++met;
            }
          }
        }
      }
      EXPECT_EQ(int64_t(made.size()), shape.made[0] * shape.made[1] * int64_t(shape.images));
      EXPECT_EQ(met, wanted.size());
    }
  }
  EXPECT_GT(served, 200);
}

TEST(DirectAtOnce, SpillsNothing) {
  std::set<std::string> sources;
  const auto add = [&](const GemmProblem& p) {
    for (const Choice& choice : cuts_of(p))
      if (at_once_registers(choice.config) > 70 || choice.config.tile.m == 4)
        sources.insert(gemm_source(choice.config));
  };
  const ConvAxis axis{.size = 14, .filter = 3, .pad_begin = 1, .pad_end = 1};
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    for (const int32_t stride : {1, 2}) add(square(kind, 3, stride));
    for (const int32_t taps : {5, 7}) add(square(kind, taps, 1));
    add(square(kind, 7, 2));
    add(depthwise(kind, axis, axis, 96, 4));
    GemmProblem p = square(kind, 3, 1);
    p.bias = Bias::row;
    p.bias_stride_batch = 1;
    p.epilogue = epilogue_of(Activation::gelu_erf);
    p.has_c = true;
    add(p);
    add(typical::with_function(square(kind, 3, 1)));
  }
  EXPECT_GE(sources.size(), 24u);
  for (const char* arch : {"sm_80", "sm_90a"}) expect_no_spills(sources, arch, 128);
}

TEST(DirectAtOnce, CutsOfATunedFileMayBeAnything) {
  const GemmProblem p = square(Conv::fprop, 3, 1);
  EXPECT_TRUE(serves(p, "direct 4x64 at_once columns 2"));
  for (const char* cut :
       {"direct 0x64 at_once columns 2", "direct 9x64 at_once columns 2", "direct 4x0 at_once columns 2",
        "direct 4x63 at_once columns 2", "direct 4x4 at_once columns 2", "direct 4x4096 at_once columns 4",
        "direct 4x64 at_once columns 3", "direct 4x64 at_once columns 16", "direct 4x64 at_once",
        "direct 4x64 at_once columns 2 parallel 2", "sm90 128x64 at_once columns 2"})
    EXPECT_FALSE(serves(p, cut)) << cut;
  EXPECT_FALSE(serves(square(Conv::dgrad, 3, 2), "direct 3x64 at_once columns 2")) << "half a cell along the line";
  EXPECT_FALSE(serves(square(Conv::wgrad, 3, 1), "direct 4x64 at_once columns 2"));
}

TEST(DirectAtOnce, ALineOfTapsIsHeldWhereNotAllAre) {
  const auto config = [](int32_t taps, const char* cut) { return choose(square(Conv::fprop, taps, 1), cut)->config; };
  EXPECT_TRUE(holds_all_filters(config(5, "direct 2x64 at_once columns 2")));
  const GemmConfig c = config(7, "direct 2x64 at_once columns 2");
  EXPECT_FALSE(holds_all_filters(c));
  const uint32_t pieces = at_once_filter_bytes(c) / at_once_filter_piece(c);
  EXPECT_EQ(pieces, 49u);
  for (uint32_t i = 0; i < pieces; ++i) {
    uint32_t lines = 0;
    for (uint32_t r = 0; r < 7; ++r) lines += has_filter_line(c, i, r);
    EXPECT_GE(lines, 1u) << i;
    EXPECT_LE(lines, 2u) << i;
  }
  for (uint32_t r = 0; r < 7; ++r) {
    uint32_t held = 0;
    for (uint32_t i = 0; i < pieces; ++i) held += has_filter_line(c, i, r) * 2;
    EXPECT_GE(held, 14u) << "two channels' taps";
    EXPECT_LE(held, 18u);
  }
}

/// 16 bytes of them at a time, which belong to nobody else.
TEST(DirectAtOnce, FiltersFollowEachOther) {
  const char* const cut = "direct 4x64 at_once columns 2";
  EXPECT_FALSE(serves(square(Conv::fprop, 3, 1, 14, 90), cut));
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    GemmProblem apart = square(kind, 3, 1), odd = apart;
    (kind == Conv::fprop ? apart.b.stride_col : apart.b.stride_row) += 8;
    EXPECT_FALSE(serves(apart, cut));
    odd.b.alignment = 8;
    EXPECT_FALSE(serves(odd, cut));
  }
}

}  // namespace
}  // namespace cleave
