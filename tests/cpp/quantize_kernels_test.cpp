// The quantising kernels: how groups are dealt to threads, and that NVRTC makes them without
// spills.

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cleave/core/math.h"
#include "expect_no_spills.h"
#include "jit/compiler.h"
#include "jit/nvrtc.h"
#include "quantize/launches.h"
#include "quantize/problem.h"
#include "quantize/row_range.h"

namespace cleave {
namespace {

QuantizeProblem problem_of(int64_t rows, int64_t cols, Granularity granularity, DType x, DType q) {
  QuantizeProblem p{.rows = rows, .cols = cols, .granularity = granularity};
  const MatrixShape scales = scale_shape(granularity, rows, cols);
  p.x = {.dtype = x, .stride_row = cols};
  p.q = {.dtype = q, .stride_row = cols};
  p.q_t = {.dtype = q, .stride_row = rows};
  p.scale = {.dtype = DType::f32, .stride_row = scales.cols};
  p.scale_t = {.dtype = DType::f32, .stride_row = scale_shape(granularity, cols, rows).cols};
  p.device = kPlanOnlyH100;
  return p;
}

std::vector<QuantizeLaunch> launches(const QuantizeProblem& problem) {
  return quantize_launches(problem, device_info(kPlanOnlyH100));
}

TEST(QuantizeLaunches, OneUnlessTheScaleOfATensorIsToBeFound) {
  for (const auto granularity :
       {Granularity::tensor, Granularity::row, Granularity::block_1x128, Granularity::block_128x128}) {
    QuantizeProblem p = problem_of(64, 4096, granularity, DType::bf16, DType::i8);
    EXPECT_EQ(launches(p).size(), granularity == Granularity::tensor ? 2u : 1u);
    p.given_scale = true;
    EXPECT_EQ(launches(p).size(), 1u);
  }
}

TEST(QuantizeLaunches, EmptyMatricesOnlyGetTheScalesTheyHave) {
  const auto count = [](int64_t rows, int64_t cols, Granularity granularity) {
    return launches(problem_of(rows, cols, granularity, DType::bf16, DType::i8)).size();
  };
  EXPECT_EQ(count(0, 64, Granularity::row), 0u);
  EXPECT_EQ(count(64, 0, Granularity::row), 1u);
  EXPECT_EQ(count(0, 64, Granularity::tensor), 1u);
  EXPECT_EQ(count(64, 0, Granularity::block_1x128), 0u);
  EXPECT_EQ(count(64, 0, Granularity::block_128x128), 0u);
}

QuantizeProblem grouped_problem(int64_t rows, int64_t cols, int64_t groups, DType x) {
  QuantizeProblem p = problem_of(rows, cols, Granularity::block_1x128, x, DType::e4m3);
  p.has_transpose = true;
  p.groups = groups;
  p.q_t.stride_row = extent_t(p);
  p.scale_t = {.dtype = DType::f32, .stride_row = 1, .stride_col = cols};
  return p;
}

TEST(QuantizeLaunches, GroupsHaveBandsForEveryCut) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const int64_t groups = 1 + random() % (i % 2 ? 5 : 300);
    int64_t rows = 0, bands = 0;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t size = random() % 3 == 0 ? 0 : random() % 400;
      rows += size;
      bands += ceil_div<int64_t>(size, 128);
    }
    const int64_t rest = random() % 2 * (random() % 1000);
    const QuantizeProblem p = grouped_problem(rows + rest, 256, groups, DType::bf16);
    ASSERT_TRUE(validate(p).empty());
    ASSERT_EQ(extent_t(p) % 128, 0);
    ASSERT_GE(extent_t(p), bands * 128);
    const auto made = launches(p);
    ASSERT_EQ(made.front().kernel, QuantizeKernel::find_bands);
    ASSERT_GE(made.front().params.bands, bands + ceil_div<int64_t>(rest, 128));
    ASSERT_EQ(made.size(), rows + rest == 0 ? 1u : 2u);
    if (made.size() == 1) continue;
    ASSERT_TRUE(made.back().config.grouped);
    ASSERT_EQ(made.back().shape.grid.x, made.front().params.bands * 2);
    ASSERT_EQ(made.back().config.width_t, 16u);
  }
}

TEST(QuantizeLaunches, PlansNeedNoGpu) {
  const auto made = plan(problem_of(64, 4096, Granularity::tensor, DType::bf16, DType::e4m3));
  EXPECT_TRUE(made->kernel_name().starts_with("measure ")) << made->kernel_name();
  EXPECT_NE(made->kernel_source().find("cleave::measure<config>"), std::string::npos);
  EXPECT_NE(made->kernel_source().find("cleave::quantize_rows<config>"), std::string::npos);
}

/// Every group belongs to a team that can hold it, or that reads the rest again; accesses are
/// aligned.
TEST(QuantizeLaunches, DealEveryGroup) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    const auto size = [&] { return int64_t(random() % (1u << random() % 15)); };
    QuantizeProblem p = problem_of(size(), size(), Granularity(random() % 4), DType(random() % 3), DType::e4m3);
    p.x.stride_row += random() % 3 * 4;
    p.q.stride_row += random() % 3 * 4;
    p.x.alignment = max_of(uint32_t(1 << random() % 5), size_of(p.x.dtype));
    p.has_smooth = random() % 4 == 0;
    p.smooth_alignment = 4 << random() % 3;
    p.given_scale = random() % 3 == 0;
    p.has_transpose = !p.given_scale && p.granularity >= Granularity::block_1x128 && random() % 2;
    p.gated = p.granularity == Granularity::block_1x128 && !p.has_transpose && !p.given_scale && !p.has_smooth;
    if (p.gated) p.x.stride_row += p.cols;
    ASSERT_TRUE(validate(p).empty());
    for (const QuantizeLaunch& launch : launches(p)) {
      const QuantizeConfig& c = launch.config;
      const QuantizeParams& params = launch.params;
      SCOPED_TRACE(translation_unit(launch.kernel, c));
      ASSERT_EQ(params.cols % c.width, 0);
      ASSERT_LE(c.width * size_of(p.x.dtype), p.x.alignment);
      if (params.rows > 1) {
        ASSERT_EQ(params.x_stride % c.width, 0);
        ASSERT_EQ(params.q_stride % c.width, 0);
      }
      if (c.has_smooth) {
        ASSERT_LE(min_of(4 * c.width, 16u), p.smooth_alignment);
      }
      if (launch.kernel == QuantizeKernel::quantize_tiles) {
        ASSERT_EQ(launch.shape.grid.x, ceil_div<int64_t>(p.rows, 128) * ceil_div<int64_t>(p.cols, 128));
        if (p.has_transpose) {
          ASSERT_EQ(p.rows % c.width_t, 0);
        }
        continue;
      }
      const int64_t per_row = max_of<int64_t>(params.groups_per_row.divisor, 1);
      ASSERT_EQ(params.groups, params.rows * per_row);
      ASSERT_GE(per_row * params.group_cols, params.cols);
      ASSERT_LE(launch.shape.block.x, 1024u);
      if (c.lanes == 0) {
        ASSERT_EQ(launch.shape.grid.x, params.groups);
        ASSERT_EQ(launch.shape.block.x % 32, 0u);
        ASSERT_EQ(c.batch, 1u);
      } else {
        ASSERT_GE(int64_t(c.lanes) * c.hold * c.width, params.group_cols);
        const uint32_t at_once = launch.shape.block.x / c.lanes * c.batch;
        if (launch.kernel == QuantizeKernel::quantize_rows) {
          ASSERT_EQ(launch.shape.grid.x, ceil_div(params.groups, at_once));
        }
      }
    }
  }
}

/// A norm with all that may be beside it.
QuantizeProblem normed_problem(int64_t rows, int64_t cols, Granularity granularity, DType x, DType weight) {
  QuantizeProblem p = problem_of(rows, cols, granularity, x, DType::e4m3);
  p.given_scale = granularity == Granularity::tensor;
  p.norm = {.kind = Norm::rms_norm, .has_weight = true, .dtype = weight};
  p.has_residual = true;
  p.residual = p.residual_out = {.dtype = x, .stride_row = cols};
  return p;
}

TEST(QuantizeLaunches, OneKernelNormalisesAnyNumberOfRows) {
  for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::block_1x128}) {
    QuantizeProblem p = normed_problem(16, 4096, granularity, DType::bf16, DType::bf16);
    EXPECT_EQ(plans_of_rows(p, 1, 300).size(), 1u);
  }
}

TEST(QuantizeLaunches, ScaleOfAllNormsTakesALaunchThatWritesTheSum) {
  QuantizeProblem p = normed_problem(16, 4096, Granularity::tensor, DType::bf16, DType::bf16);
  p.given_scale = false;
  p.has_normed = true;
  p.normed_out = p.x;
  const auto made = launches(p);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].kernel, QuantizeKernel::measure_normed);
  EXPECT_FALSE(made[0].config.given_scale || made[0].config.has_normed || made[0].config.summed);
  EXPECT_EQ(made[1].kernel, QuantizeKernel::quantize_normed);
  EXPECT_TRUE(made[1].config.given_scale && made[1].config.has_normed && made[1].config.summed);
  p.rows = 0;
  ASSERT_EQ(launches(p).size(), 1u) << "the scale of an empty tensor is written, too";
}

/// Rows that are to be normalised stay in registers as a whole, up to 16384 elements, in one launch; how they are dealt
/// to threads does not depend on how many there are.
TEST(QuantizeLaunches, NormsDealRowsByTheirColumnsAlone) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    const int64_t rows = 1 + random() % 5000, cols = random() % (1u << random() % 16);
    const DType x = DType(random() % 3), weight = DType(random() % 3);
    const Granularity granularity = Granularity(random() % 3);
    QuantizeProblem p = normed_problem(rows, cols, granularity, x, weight);
    p.residual.dtype = p.residual_out.dtype = DType(random() % 3);
    p.residual.stride_row += random() % 3 * 4;
    p.residual.alignment = max_of(uint32_t(1 << random() % 5), size_of(p.residual.dtype));
    p.norm.alignment = max_of(uint32_t(1 << random() % 5), size_of(weight));
    p.norm.has_bias = random() % 2;
    ASSERT_TRUE(validate(p).empty()) << validate(p).front();
    const auto made = launches(p);
    ASSERT_EQ(made.size(), 1u);
    const QuantizeConfig& c = made.front().config;
    const LaunchShape& shape = made.front().shape;
    SCOPED_TRACE(translation_unit(made.front().kernel, c));
    ASSERT_EQ(made.front().kernel, QuantizeKernel::quantize_normed);
    ASSERT_EQ(cols % c.width, 0);
    ASSERT_LE(min_of(c.width * size_of(weight), 16u), p.norm.alignment);
    ASSERT_LE(min_of(c.width * size_of(p.residual.dtype), 16u), p.residual.alignment);
    if (rows > 1) {
      ASSERT_EQ(p.residual.stride_row * size_of(p.residual.dtype) % min_of(c.width * size_of(p.residual.dtype), 16u),
                0u);
    }
    const uint32_t team = c.lanes == 0 ? shape.block.x : c.lanes;
    const bool wide = size_of(x) + size_of(p.residual.dtype) + size_of(weight) * (p.norm.has_bias ? 2 : 1) > 8;
    const int64_t held = int64_t(team) * c.hold * c.width;
    ASSERT_EQ(c.whole, cols <= min_of<int64_t>(4096 * c.width, wide ? 8192 : 16384));
    ASSERT_EQ(c.whole, held >= cols);
    ASSERT_EQ(shape.grid.x, ceil_div<int64_t>(rows, c.lanes == 0 ? 1 : shape.block.x / c.lanes));
    p.rows = 1 + random() % 5000;
    p.scale.stride_row = scale_shape(granularity, p.rows, cols).cols;
    const auto other = launches(p);
    if (p.rows > 1 && rows > 1) {
      ASSERT_EQ(other.front().config, c);
      ASSERT_EQ(other.front().shape.block.x, shape.block.x);
    }
  }
}

TEST(QuantizeLaunches, RowsUpTo32768ElementsStayInRegisters) {
  for (const int64_t rows : {1, 8192}) {
    for (const int64_t cols : {1032, 7168, 16384, 32768}) {
      const auto launch = launches(problem_of(rows, cols, Granularity::row, DType::bf16, DType::i8)).front();
      EXPECT_GE(launch.shape.block.x * launch.config.hold * launch.config.width, cols);
    }
  }
}

TEST(QuantizeSource, TheConstantEqualsTheConfiguration) {
  if (!nvrtc_available()) GTEST_SKIP() << "NVRTC is not installed: pip install nvidia-cuda-nvrtc";
  const QuantizeConfig unusual{.x = DType::f16,
                               .q = DType::e5m2,
                               .width = 2,
                               .given_scale = true,
                               .symmetric = false,
                               .has_smooth = true,
                               .gated = true,
                               .ue8m0 = true,
                               .norm = Norm::layer_norm,
                               .has_weight = true,
                               .has_bias = true,
                               .weight = DType::f32,
                               .has_residual = true,
                               .residual = DType::f32,
                               .has_normed = true,
                               .summed = true,
                               .whole = false,
                               .blocks = true,
                               .lanes = 8,
                               .hold = 1,
                               .batch = 2,
                               .square = false,
                               .width_t = 4,
                               .grouped = true};
  const std::string text = translation_unit(QuantizeKernel::quantize_rows, unusual);
  const size_t begin = text.find("{"), end = text.find("};");
  const std::string source =
      "#include \"cleave/quantize/quantize_config.h\"\n"
      "constexpr cleave::QuantizeConfig unusual = " +
      text.substr(begin, end - begin) +
      "};\n"
      "static_assert(unusual == cleave::QuantizeConfig{cleave::DType::f16, cleave::DType::e5m2, 2, "
      "true, false, true, true, true, cleave::Norm::layer_norm, true, true, cleave::DType::f32, true, "
      "cleave::DType::f32, true, true, false, true, 8, 1, 2, false, 4, true});\n"
      "extern \"C\" __global__ void empty() {}\n";
  EXPECT_NO_THROW(compile_uncached(source, "sm_80")) << source;
}

/// One problem for each path through each kernel, with its widest access and its narrowest.
std::set<std::string> typical_sources() {
  std::set<std::string> sources;
  const auto add = [&](QuantizeProblem p) {
    for (const QuantizeLaunch& launch : launches(p)) sources.insert(translation_unit(launch.kernel, launch.config));
  };
  const auto make = [](int64_t cols, Granularity granularity, DType x, DType q) {
    return problem_of(4096, cols, granularity, x, q);
  };
  add(make(7168, Granularity::row, DType::bf16, DType::e4m3));
  add(make(1024, Granularity::row, DType::f16, DType::i8));
  add(make(4097, Granularity::row, DType::f32, DType::i8));
  QuantizeProblem asymmetric = make(7168, Granularity::tensor, DType::bf16, DType::i8);
  asymmetric.symmetric = false;
  add(asymmetric);
  QuantizeProblem smooth = make(7168, Granularity::row, DType::bf16, DType::i8);
  smooth.has_smooth = true;
  add(smooth);
  add(make(7168, Granularity::block_1x128, DType::f32, DType::e4m3));
  add(make(7167, Granularity::block_1x128, DType::bf16, DType::e5m2));
  QuantizeProblem rounded = make(7168, Granularity::block_1x128, DType::bf16, DType::e4m3);
  rounded.ue8m0_scale = true;
  add(rounded);
  rounded = make(7168, Granularity::block_128x128, DType::bf16, DType::e4m3);
  add(rounded);
  rounded.ue8m0_scale = true;
  add(rounded);
  for (const int64_t rows : {16, 4096}) {
    for (const int64_t cols : {7168, 7170}) {  // ups that are aligned, and that are not
      QuantizeProblem gated = problem_of(rows, cols, Granularity::block_1x128, DType::f32, DType::e4m3);
      gated.x.stride_row = 2 * cols;
      gated.gated = true;
      gated.ue8m0_scale = cols != 7168;
      add(gated);
    }
  }
  QuantizeProblem turned = make(7168, Granularity::block_1x128, DType::bf16, DType::e4m3);
  turned.has_transpose = true;
  add(turned);
  turned = problem_of(4095, 7167, Granularity::block_128x128, DType::f32, DType::e4m3);
  turned.has_transpose = true;
  add(turned);
  for (const DType x : {DType::f16, DType::bf16, DType::f32}) add(grouped_problem(4096, 7168, 64, x));
  for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::block_1x128}) {
    // In registers as a whole, and longer; short; unaligned.
    for (const int64_t cols : {4096, 20000, 128, 4097}) {
      QuantizeProblem normed = normed_problem(4096, cols, granularity, DType::bf16, DType::bf16);
      add(normed);
      normed.given_scale = false;
      normed.ue8m0_scale = true;
      add(normed);
      normed.ue8m0_scale = false;
      normed.has_residual = false;
      normed.q.dtype = DType::i8;
      normed.symmetric = granularity != Granularity::row;
      add(normed);
      normed = normed_problem(4096, cols, granularity, DType::f16, DType::f32);
      normed.norm.kind = Norm::layer_norm;
      normed.norm.has_bias = normed.has_normed = true;
      normed.residual.dtype = normed.residual_out.dtype = DType::f32;
      normed.normed_out = normed.x;
      add(normed);
    }
  }
  QuantizeProblem wide = normed_problem(4096, 8192, Granularity::row, DType::f32, DType::f32);
  wide.norm.has_bias = true;
  add(wide);
  wide.norm.dtype = DType::bf16;
  add(wide);
  wide.norm.kind = Norm::layer_norm;
  wide.x.dtype = wide.residual.dtype = wide.residual_out.dtype = DType::bf16;
  add(wide);
  wide = normed_problem(4096, 32768, Granularity::row, DType::f32, DType::bf16);
  wide.norm.has_bias = true;
  add(wide);
  return sources;
}

TEST(QuantizeKernels, CompileForHopperWithoutSpills) {
  expect_no_spills(typical_sources(), "sm_90a");
}

TEST(QuantizeKernels, CompileForAmpereWithoutSpills) {
  expect_no_spills(typical_sources(), "sm_80");
}

}  // namespace
}  // namespace cleave
