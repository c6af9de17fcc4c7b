// Grouped products on the CPU against double: every grouping, every bounds, every split mode.

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "cpu_gemm_check.h"

namespace cleave {
namespace {

constexpr Grouping kGroupings[] = {Grouping::m, Grouping::n, Grouping::k};

int64_t& size_along(Shape& shape, Grouping dimension) {
  return dimension == Grouping::m ? shape.m : dimension == Grouping::n ? shape.n : shape.k;
}

/// Groups along `dimension`; `shape` gets their extent and number.
CaseForm draw_groups(Random& random, Grouping dimension, GroupBounds bounds, const Kinds& kinds, Shape& shape) {
  // Scales of blocks along a K that is grouped: a block lies in one group.
  const bool blocks = dimension == Grouping::k && kinds.scaling == Scaling::block;
  const uint32_t counts[] = {1, 2, uint32_t(random.number(3, 9)), uint32_t(random.number(10, 30))};
  const uint32_t largest[] = {1, 7, uint32_t(random.number(8, 40)), 130};
  const uint32_t spacing[] = {1, 8, kScaleBlock};
  CaseForm form;
  form.groups.emplace(random, bounds, random.pick(counts), random.pick(largest),
                      blocks ? kScaleBlock : random.pick(spacing));
  form.groups->layout.dimension = dimension;
  form.groups->layout.zero_rest = dimension != Grouping::k && random.coin();
  size_along(shape, dimension) = form.groups->extent;
  shape.batch = form.groups->count();
  return form;
}

Case draw_case(Random& random, Grouping dimension, bool integers, bool swiglu = false) {
  Kinds kinds = any_kinds(random);
  if (swiglu) kinds.d = random.pick(kTypes);
  const int64_t sizes[] = {1, random.number(2, 20), random.number(21, 70), random.number(120, 140)};
  const int64_t depths[] = {0, 1, random.number(2, 40), random.number(250, 600)};
  Shape shape{random.pick(sizes), random.pick(sizes), random.pick(depths)};
  const bool blocks = dimension == Grouping::k && kinds.scaling == Scaling::block;
  const GroupBounds bounds =
      blocks ? random.pick({GroupBounds::aligned_ends, GroupBounds::counts}) : random.pick(kBounds);
  CaseForm form = draw_groups(random, dimension, bounds, kinds, shape);
  form.swiglu = swiglu;
  if (shape.m * shape.n * shape.k > 5'000'000) {
    (dimension == Grouping::k ? shape.n : shape.k) = random.number(1, 20);
  }
  return Case(random, shape, kinds, integers, std::move(form));
}

void draw_split(Random& random, SplitKMode mode, Case& x) {
  x.problem.split_k_mode = mode;
  x.problem.split_k_slices = draw_slices(random, mode, x.problem.k);
}

TEST(CpuGrouped, IntegersAreExact) {
  Random random(1);
  for (int round = 0; round < 30; ++round) {
    for (const SplitKMode mode : kModes) {
      for (const Grouping dimension : kGroupings) {
        Case x = draw_case(random, dimension, true);
        draw_split(random, mode, x);
        expect_correct(x, uint32_t(random.number(1, 4)), true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuGrouped, RealsAndActivationsAreClose) {
  Random random(2);
  for (int round = 0; round < 12; ++round) {
    for (const SplitKMode mode : kModes) {
      for (const Grouping dimension : kGroupings) {
        Case x = draw_case(random, dimension, false);
        draw_split(random, mode, x);
        if (x.problem.d.dtype != DType::i32) {
          x.problem.epilogue = epilogue_of(random.pick(kElementwise));
        }
        expect_correct(x, uint32_t(random.number(1, 4)), false);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// K deep enough for parts of a last wave's tiles.
TEST(CpuGrouped, StreamKCutsTheLastWave) {
  Random random(8);
  for (int round = 0; round < 12; ++round) {
    for (const Grouping dimension : {Grouping::m, Grouping::n}) {
      const Kinds kinds = any_kinds(random);
      Shape shape{random.number(1, 20), random.number(1, 20), random.number(1100, 2000)};
      CaseForm form = draw_groups(random, dimension, random.pick(kBounds), kinds, shape);
      Case x(random, shape, kinds, true, std::move(form));
      x.problem.split_k_mode = SplitKMode::stream_k;
      expect_correct(x, uint32_t(random.number(1, 4)), true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CpuGrouped, SwigluJoinsGatesAndUpsOfItsGroup) {
  Random random(3);
  for (int round = 0; round < 12; ++round) {
    for (const SplitKMode mode : kModes) {
      Case x = draw_case(random, Grouping::m, false, true);
      draw_split(random, mode, x);
      expect_correct(x, uint32_t(random.number(1, 4)), false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CpuGrouped, EmptyGroupsOfKGiveZerosOrC) {
  Random random(4);
  const Kinds scaled{DType::e4m3, DType::e5m2, DType::f32, Scaling::vector};
  const Kinds plain{DType::bf16, DType::bf16, DType::f32};
  for (const SplitKMode mode : kModes) {
    for (const auto& [kinds, accumulate] : std::initializer_list<std::pair<Kinds, bool>>{
             {plain, false}, {plain, true}, {scaled, false}, {scaled, true}}) {
      Shape shape{30, 40, 0};
      CaseForm form = draw_groups(random, Grouping::k, GroupBounds::ends, kinds, shape);
      for (GroupRange& range : form.groups->ranges) range = {0, 0};
      form.groups->offsets = {};
      for (uint32_t g = 0; g < form.groups->count(); ++g) form.groups->offsets.push_back(0);
      Case x(random, shape, kinds, true, std::move(form));
      x.problem.bias = Bias::none;
      x.problem.has_c = accumulate;
      x.beta = 1;
      for (float& scale : x.scale_a.values) scale = INFINITY;  // times nothing
      x.problem.split_k_mode = mode;
      const auto plan = make_cpu_plan(x.problem, 2);
      plan->run(x.arguments(), nullptr);
      x.for_each(
          [&](int64_t e, int64_t i, int64_t j) { ASSERT_EQ(x.d.get(e, i, j), accumulate ? x.c.get(e, i, j) : 0.0f); });
    }
  }
}

// A weight gradient that is added where it lies.
TEST(CpuGrouped, CMayBeDExactly) {
  Random random(5);
  for (const SplitKMode mode : kModes) {
    for (const Grouping dimension : kGroupings) {
      Shape shape{60, 70, 200};
      const Kinds kinds{DType::bf16, DType::bf16, DType::f32};
      CaseForm form = draw_groups(random, dimension, GroupBounds::ends, kinds, shape);
      form.groups->layout.zero_rest = false;
      Case x(random, shape, kinds, true, std::move(form));
      x.problem.has_c = true;
      x.problem.c = x.problem.d;
      x.problem.split_k_mode = mode;
      x.beta = 1;
      x.for_each([&](int64_t e, int64_t i, int64_t j) { x.d.set(e, i, j, float(random.number(-9, 9))); });
      x.c = x.d;
      Tensor want = x.d;
      x.for_each([&](int64_t e, int64_t i, int64_t j) { want.set(e, i, j, float(x.expected(e, i, j))); });
      GemmArguments arguments = x.arguments();
      arguments.c = arguments.d;
      make_cpu_plan(x.problem, 3)->run(arguments, nullptr);
      SCOPED_TRACE(text(x.problem));
      expect_same_bytes(x.d, want);
    }
  }
}

TEST(CpuGrouped, OneGroupIsTheDenseProduct) {
  Random random(6);
  for (const SplitKMode mode : kModes) {
    for (const Grouping dimension : kGroupings) {
      Case x(random, {50, 60, 700}, wide_kinds(random), true);
      x.problem.split_k_mode = mode;
      make_cpu_plan(x.problem, 2)->run(x.arguments(), nullptr);
      const Tensor dense = x.d;
      const int64_t end = dimension == Grouping::m ? x.problem.m : dimension == Grouping::n ? x.problem.n : x.problem.k;
      x.problem.groups = {.dimension = dimension, .wide = true};
      std::fill(x.d.bytes.begin(), x.d.bytes.end(), 0xEE);
      GemmArguments arguments = x.arguments();
      arguments.group_offsets = &end;
      make_cpu_plan(x.problem, 2)->run(arguments, nullptr);
      SCOPED_TRACE(text(x.problem));
      expect_same_bytes(x.d, dense);
    }
  }
}

// Nothing outside D, and of the workspace, changes, whatever the arrays hold.
TEST(CpuGrouped, WrongBoundsWriteNothingOutsideD) {
  Random random(7);
  using Limits = std::numeric_limits<int64_t>;
  for (int round = 0; round < 20; ++round) {
    for (const SplitKMode mode : kModes) {
      for (const Grouping dimension : kGroupings) {
        Case x = draw_case(random, dimension, true);
        draw_split(random, mode, x);
        const int64_t extent = x.form.groups->extent;
        GroupArray offsets, sizes;
        for (int64_t g = 0; g <= x.problem.batch; ++g) {
          const int64_t values[] = {random.number(-extent, 2 * extent), extent, 0,
                                    random.number(Limits::min(), Limits::max())};
          offsets.push_back(random.pick(values));
          sizes.push_back(random.pick(values));
        }
        GemmArguments arguments = x.arguments();
        arguments.group_offsets = offsets.data(x.problem.groups.wide);
        arguments.group_sizes = sizes.data(x.problem.groups.wide);
        const auto plan = make_cpu_plan(x.problem, uint32_t(random.number(1, 4)));
        PlanWorkspace workspace(*plan);
        Tensor want = x.d;
        plan->run(arguments, workspace.data(), workspace.size(), nullptr);
        workspace.expect_intact();
        for (int64_t e = 0; e < (x.flat_d ? 1 : x.problem.batch); ++e) {
          for (int64_t i = 0; i < x.problem.m; ++i) {
            for (int64_t j = 0; j < x.problem.n; ++j) {
              std::memcpy(want.address(e, i, j), x.d.address(e, i, j), size_of(x.d.layout.dtype));
            }
          }
        }
        expect_same_bytes(x.d, want);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuGrouped, BitwiseRepeatableForAnyThreadCount) {
  Random random(8);
  for (const SplitKMode mode : kModes) {
    for (const Grouping dimension : kGroupings) {
      // Deep and ragged, and enough of it that 16 threads are worth starting.
      Shape shape{120, 140, 2000};
      const Kinds kinds = any_kinds(random);
      CaseForm form;
      form.groups.emplace(random, GroupBounds::ends, 7, 150, 1);
      if (dimension == Grouping::k && kinds.scaling == Scaling::block) {
        form.groups.emplace(random, GroupBounds::aligned_ends, 7, 150, kScaleBlock);
      }
      form.groups->layout.dimension = dimension;
      size_along(shape, dimension) = form.groups->extent;
      shape.batch = form.groups->count();
      Case x(random, shape, kinds, false, std::move(form));
      x.problem.split_k_mode = mode;
      x.problem.split_k_slices = mode == SplitKMode::none || random.coin() ? 0 : 7;
      SCOPED_TRACE(text(x.problem));
      expect_equal_bits(x, {1u, 2u, 5u, 16u});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// One plan, and one workspace, for groups of any sizes: what a captured graph relies on.
TEST(CpuGrouped, OnePlanServesNewBounds) {
  Random random(9);
  for (const SplitKMode mode : kModes) {
    for (const Grouping dimension : kGroupings) {
      Shape shape{90, 100, 500};
      const Kinds kinds{DType::bf16, DType::bf16, DType::f32};
      CaseForm form = draw_groups(random, dimension, GroupBounds::ends, kinds, shape);
      Case x(random, shape, kinds, true, std::move(form));
      x.problem.groups.zero_rest = dimension != Grouping::k;
      x.problem.split_k_mode = mode;
      const auto plan = make_cpu_plan(x.problem, 3);
      PlanWorkspace workspace(*plan);
      for (int run = 0; run < 4; ++run) {
        GroupCase& groups = *x.form.groups;
        groups.offsets = {};
        uint32_t begin = 0;
        for (GroupRange& range : groups.ranges) {
          range = {begin, uint32_t(random.number(begin, groups.extent))};
          begin = range.end;
          groups.offsets.push_back(range.end);
        }
        Tensor want = x.d;
        if (dimension != Grouping::k) {
          for (int64_t i = 0; i < x.problem.m; ++i) {
            for (int64_t j = 0; j < x.problem.n; ++j) want.set(0, i, j, 0.0f);
          }
        }
        x.for_each([&](int64_t e, int64_t i, int64_t j) { want.set(e, i, j, float(x.expected(e, i, j))); });
        plan->run(x.arguments(), workspace.data(), workspace.size(), nullptr);
        workspace.expect_intact();
        SCOPED_TRACE(text(x.problem));
        expect_same_bytes(x.d, want);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuGrouped, WorkspaceServesTheMostTilesThatGroupsCanHave) {
  GemmProblem p{.m = 4096,
                .n = 256,
                .k = 4096,
                .batch = 64,
                .a = {.stride_row = 4096},
                .b = {.stride_row = 256, .stride_batch = 4096 * 256},
                .d = {.stride_row = 256},
                .groups = {.dimension = Grouping::m},
                .split_k_slices = 8,
                .device = kCpu};
  // Tiles of 66 rows, for 64 in the mean: one for each of 64 groups, and one for each 66 of the
  // other rows.
  constexpr size_t kTiles = (64 + (4096 - 64) / 66) * 2;
  constexpr size_t kTile = 66 * 128 * sizeof(float);
  const auto size = [&](SplitKMode mode) {
    p.split_k_mode = mode;
    return make_cpu_plan(p, 2)->workspace_size();
  };
  EXPECT_EQ(size(SplitKMode::serial), 16 + kTiles * kTile);
  EXPECT_EQ(size(SplitKMode::parallel), 16 + kTiles * 8 * kTile);
  EXPECT_EQ(size(SplitKMode::stream_k), 16 + 2 * 16 * kTile);
  EXPECT_EQ(size(SplitKMode::cluster), 0u);
}

TEST(CpuGrouped, AutomaticSplitsDeepProductsOfFewRows) {
  GemmProblem p{.m = 16,
                .n = 64,
                .k = 60000,
                .batch = 4,
                .a = {.stride_row = 60000},
                .b = {.stride_row = 64, .stride_batch = 64 * 60000},
                .d = {.stride_row = 64},
                .groups = {.dimension = Grouping::m},
                .device = kCpu};
  const auto deep = make_cpu_plan(p, 2);
  EXPECT_NE(deep->split_k_mode(), SplitKMode::none);
  EXPECT_NE(deep->why().find("of equally large groups"), std::string::npos) << deep->why();
  p.k = 64;
  EXPECT_EQ(make_cpu_plan(p, 2)->split_k_mode(), SplitKMode::none);
}

}  // namespace
}  // namespace cleave
