// Products with a packed weight: their rules, what they read, and which kernels serve them.
#include <gtest/gtest.h>

#include <set>

#include "cleave/config/output.h"
#include "cleave/config/smem_plan.h"
#include "cleave/device.h"
#include "gemm_problems.h"
#include "launch/product_params.h"
#include "plan/catalogue/candidates.h"
#include "plan/catalogue/listed.h"
#include "plan/plans/gpu_plan.h"
#include "plan/problem_text.h"
#include "problem/placement.h"
#include "problem/problem.h"

namespace cleave {
namespace {

GemmProblem good_weights(int64_t m = 33, int64_t n = 200, int64_t k = 512, int64_t group = 128) {
  GemmProblem p{
      .m = m, .n = n, .k = k, .a = row_major(k), .b = column_major(round_up<int64_t>(k, 64)), .d = row_major(n)};
  p.c = p.d;
  p.weights_b = {.format = WeightFormat::int4, .group = group, .scale_stride_k = n};
  p.device = kPlanOnlyH100;
  return p;
}

TEST(WeightProblem, RulesAreReported) {
  EXPECT_EQ(validate(good_weights()), kFine);
  EXPECT_EQ(validate(good_weights(1, 1, 1, 1)), kFine);
  EXPECT_EQ(validate(good_weights(3, 5, 200, 200)), kFine);  // whole rows
  const auto refuses = [](const auto& change, const std::vector<std::string>& words) {
    GemmProblem p = good_weights();
    change(p);
    expect_refusal(p, words);
  };
  refuses([](GemmProblem& p) { p.weights_b.group = 48; }, {"group_size is 48"});
  refuses([](GemmProblem& p) { p.weights_b.group = 384; }, {"group_size is 384, which does not divide k (512)"});
  refuses([](GemmProblem& p) { p.weights_b.group = 0; }, {"group_size is 0"});
  refuses([](GemmProblem& p) { p.weights_b.group = 640; }, {"group_size is 640, which does not divide k (512)"});
  refuses([](GemmProblem& p) { std::swap(p.weights_a, p.weights_b); }, {"weights_a is int4; only b"});
  refuses([](GemmProblem& p) { p.a.dtype = p.b.dtype = DType::f32; }, {"a is float32, but b is a packed weight"});
  refuses([](GemmProblem& p) { p.a.dtype = p.b.dtype = DType::e5m2; }, {"a is float8_e5m2, but b is a packed weight"});
  refuses([](GemmProblem& p) { p.scale_a = {.kind = Scaling::vector, .stride_row = 1}; },
          {"scale_a is given, but a is bfloat16"});
  refuses([](GemmProblem& p) { p.b.stride_col = 640; }, {"b has strides 1 and 640"});
  refuses([](GemmProblem& p) { p.weights_b.scale_stride_k = 0; }, {"scale.stride_k is 0"});
  refuses([](GemmProblem& p) { p.kernel = KernelFamily::portable; }, {"kernel is portable, but b is a packed weight"});
  refuses([](GemmProblem& p) { p.k = 0; }, {"k is 0, but b is a packed weight"});
}

TEST(WeightProblem, ActivationsOfEightBits) {
  const auto eight = [](DType type, WeightFormat format, int64_t group) {
    GemmProblem p = good_weights();
    p.a.dtype = p.b.dtype = type;
    p.weights_b.format = format;
    p.weights_b.group = group;
    p.scale_a = {.kind = Scaling::vector, .stride_row = 1};
    return p;
  };
  GemmProblem nvfp4 = eight(DType::e4m3, WeightFormat::nvfp4, 16);
  expect_refusal(nvfp4, {"global_scale is missing, but format is nvfp4"});
  nvfp4.scale_b.kind = Scaling::vector;
  for (const GemmProblem& p :
       {eight(DType::e4m3, WeightFormat::int4, 64), eight(DType::i8, WeightFormat::int4, 512),
        eight(DType::e4m3, WeightFormat::mxfp4, 32), eight(DType::i8, WeightFormat::mxfp4, 32), nvfp4}) {
    EXPECT_EQ(validate(p), kFine);
    EXPECT_FALSE(sums_are_integers(p));
    const std::string text = problem_text(p);
    const auto parsed = parse_problem(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(problem_text(*parsed), text);
    EXPECT_EQ(parsed->scale_a.kind, Scaling::vector);
    EXPECT_EQ(parsed->scale_b.kind, p.scale_b.kind);
    const auto found = candidates(p, device_info(kPlanOnlyH100));
    EXPECT_FALSE(found.empty());
    for (const Choice& choice : found) {
      const GemmConfig& c = choice.config;
      EXPECT_EQ(c.family, KernelFamily::sm90);
      EXPECT_TRUE(c.scales.promote);
      EXPECT_EQ(c.tile.k, 128u);
      EXPECT_TRUE(c.epilogue.scaled_columns);
      EXPECT_EQ(c.epilogue.scaled_rows, p.scale_b.kind == Scaling::vector);
    }
  }
  GemmProblem integers = eight(DType::i8, WeightFormat::int4, 64);
  integers.d.dtype = integers.c.dtype = DType::i32;
  const Refusals of_integers = validate(integers);
  ASSERT_EQ(of_integers.size(), 2u);
  expect_parts(of_integers[0], {"d is int32, which takes the integer sums", "there is scale_a"});
  expect_parts(of_integers[1], {"d is int32, but b is a packed weight"});
  GemmProblem offset = eight(DType::i8, WeightFormat::int4, 64);
  offset.has_zero = true;
  expect_refusal(offset, {"has_zero (azp_adj) is set, but b is a packed weight"});
}

TEST(WeightProblem, TheStreamedKernelServesWhatTmaCannot) {
  DeviceInfo a100 = device_info(kPlanOnlyH100);
  a100.compute_capability = 80;
  a100.shared_memory_per_block = 163 * 1024;
  const auto families = [](const GemmProblem& p, const DeviceInfo& device) {
    std::set<KernelFamily> found;
    for (const Choice& choice : candidates(p, device)) found.insert(choice.config.family);
    return found;
  };
  using enum KernelFamily;
  const DeviceInfo hopper = device_info(kPlanOnlyH100);
  EXPECT_EQ(families(good_weights(), hopper), (std::set{sm90, streamed}));
  EXPECT_EQ(families(good_weights(), a100), std::set{streamed});
  GemmProblem odd = good_weights();
  odd.a.stride_row = 513;
  odd.a.alignment = 2;
  EXPECT_EQ(families(odd, hopper), std::set{streamed});
  odd.kernel = sm90;
  try {
    plan(odd);
    ADD_FAILURE() << "rows that TMA cannot read";
  } catch (const Error& error) {
    expect_parts(error.what(),
                 {"kernel=\"sm90\"", "rows of a that start at multiples of 16 bytes", "copy a into such"});
  }
  GemmProblem cut = good_weights();
  cut.split_k_mode = SplitKMode::stream_k;
  EXPECT_EQ(families(cut, a100), std::set<KernelFamily>{});
  GemmProblem dense = good_weights();
  dense.weights_b = {};
  dense.b = column_major(dense.k);
  EXPECT_FALSE(families(dense, a100).contains(streamed));
}

TEST(WeightProblem, TheStreamedKernelKeepsAsMuchOfBAsFits) {
  for (const Choice& choice : candidates(good_weights(8, 4096, 14336), device_info(kPlanOnlyH100))) {
    const GemmConfig& c = choice.config;
    if (c.family != KernelFamily::streamed) continue;
    EXPECT_EQ(c.warps.m * c.warps.k, 16) << to_string(choice.spec);
    EXPECT_GE(c.tile.stages, c.warps.k);
    GemmConfig more = c;
    ++more.tile.stages;
    EXPECT_LE(smem_plan(c).bytes, kSharedLimit);
    EXPECT_GT(smem_plan(more).bytes, kSharedLimit);
  }
}

TEST(WeightProblem, TheStreamedKernelIsPredictedAsAnH200MeasuredIt) {
  const struct {
    int64_t m, n, k;
    double by_64_rows, by_32_rows;  // docs/notes/2026-11-four-bit-weights.md
  } measured[] = {{1, 28672, 4096, 25.1, 25.5}, {1, 8192, 28672, 37.8, 38.2}, {1, 4096, 4096, 9.5, 8.0},
                  {8, 28672, 4096, 25.7, 25.7}, {8, 8192, 28672, 45.9, 55.6}, {8, 4096, 4096, 10.3, 8.7}};
  for (const auto& row : measured) {
    size_t compared = 0;
    for (const Choice& choice : candidates(good_weights(row.m, row.n, row.k), device_info(kPlanOnlyH200))) {
      const GemmConfig& c = choice.config;
      const bool plain = c.family == KernelFamily::streamed && c.schedule.split == SplitKMode::none;
      if (!plain || c.tile.m < 32 || c.tile.n != 8) continue;
      const double us = c.tile.m == 64 ? row.by_64_rows : row.by_32_rows;
      EXPECT_NEAR(choice.predicted_us, us, 0.2 * us) << row.m << "x" << row.n << "x" << row.k;
      ++compared;
    }
    EXPECT_EQ(compared, 2u);
  }
}

TEST(WeightProblem, ReadsHalfABytePerCodeOfWholeBlocks) {
  const GemmProblem p = good_weights();
  EXPECT_EQ(bytes_of_b(p), 4 * 8 * 2048);
  EXPECT_EQ(weight_scale_of(p).rows, 4);
  EXPECT_EQ(weight_scale_of(p).columns, 200);
  EXPECT_TRUE(weight_zero_of(p).empty());
  EXPECT_EQ(bytes_of_a(transposed(p)), bytes_of_b(p));
  EXPECT_EQ(weight_scale_of(transposed(p)).columns, 200);
}

TEST(WeightProblem, TextComesBack) {
  for (GemmProblem p : {good_weights(), good_weights(1, 1, 1, 1), good_weights(3, 5, 200, 200)}) {
    p.weights_b.has_zero = p.n > 1;
    const auto parsed = parse_problem(problem_text(p));
    ASSERT_TRUE(parsed) << problem_text(p);
    EXPECT_EQ(parsed->weights_b, p.weights_b);
    EXPECT_EQ(parsed->b, p.b);
  }
  EXPECT_EQ(problem_text(good_weights()), "33x200x512x1 tn bfloat16 bfloat16 weights int4 128");
}

TEST(WeightProblem, WeightsTakeTheInstructionsRows) {
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster,
                                 SplitKMode::stream_k, SplitKMode::automatic}) {
    GemmProblem p = good_weights(16, 4096, 4096);
    p.split_k_mode = split;
    p.kernel = KernelFamily::sm90;
    const auto found = candidates(p, device_info(kPlanOnlyH100));
    ASSERT_FALSE(found.empty());
    for (const Choice& choice : found) {
      EXPECT_TRUE(choice.spec.transposed);
      EXPECT_EQ(choice.config.weights, (WeightConfig{WeightFormat::int4, 128, false}));
      EXPECT_EQ(choice.config.tile.k, 128u);
      EXPECT_EQ(smem_plan(choice.config).a_stage, choice.config.tile.m * 64);
    }
  }
}

TEST(WeightProblem, FourWarpgroupsMakeElementsForFewColumns) {
  const DeviceInfo device = device_info(kPlanOnlyH200);
  const auto consumers = [&](const GemmProblem& p, const char* kernel) {
    const auto choice = make_choice(p, device, *parse_spec(kernel));
    return choice ? choice->config.warps.consumers : 0;
  };
  GemmProblem p = good_weights(16, 4096, 4096);
  for (const char* kernel : {"sm90 256x16 transposed", "sm90 256x48 transposed", "sm90 256x64 transposed"}) {
    EXPECT_EQ(consumers(p, kernel), 4u) << kernel;
    EXPECT_TRUE(is_listed(*parse_spec(kernel)));
  }
  EXPECT_EQ(consumers(p, "sm90 256x80 transposed"), 2u);
  EXPECT_EQ(consumers(p, "sm90 256x64 transposed serial 2"), 0u) << "no registers for it";
  p.weights_b.has_zero = true;
  EXPECT_EQ(consumers(p, "sm90 256x64 transposed"), 0u) << "nor for zero points";
  EXPECT_EQ(consumers(p, "sm90 256x48 transposed"), 4u);
  p.weights_b = {};
  EXPECT_EQ(consumers(p, "sm90 256x16 transposed"), 0u) << "of other operands no tile has so few columns";
  const auto chosen = plan(good_weights(16, 28672, 4096));
  EXPECT_EQ(choice_of(*chosen)->config.warps.consumers, 4u);
}

TEST(WeightProblem, SlicesDoNotFollowFromRowsWhereThatIsPromised) {
  for (const int64_t k : {4096, 14336}) {
    std::set<int32_t> slices;
    for (const int64_t m : {1, 7, 16, 100, 600, 5000}) {
      GemmProblem p = good_weights(m, 4096, k);
      p.deterministic = Determinism::batch_invariant;
      const auto planned = plan(p);
      const Choice& choice = *choice_of(*planned);
      EXPECT_TRUE(has_weights(choice.config));
      slices.insert(choice.config.schedule.in_turn ? int32_t(choice.spec.slices) : planned->split_k_slices());
    }
    EXPECT_EQ(slices.size(), 1u);
  }
}

TEST(WeightProblem, ServesGroupsOfRowsAndMxfp4) {
  GemmProblem p = good_weights(512, 2880, 2880, 32);
  p.batch = 32;
  p.groups.dimension = Grouping::m;
  p.b.stride_batch = 2880 * 2880;
  p.weights_b.format = WeightFormat::mxfp4;
  p.weights_b.scale_stride_batch = 90 * 2880;
  EXPECT_EQ(validate(p), kFine);
  EXPECT_EQ(weight_scale_of(p).layout.dtype, DType::i8);
  const auto found = candidates(p, device_info(kPlanOnlyH100));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().config.schedule.grouping, Grouping::n);
  p.weights_b.has_zero = true;
  expect_refusal(p, {"zeros is given, but format is mxfp4"});
  p.weights_b.has_zero = false;
  p.weights_b.group = 64;
  expect_refusal(p, {"group_size is 64, but format is mxfp4"});
  p.weights_b.group = 32;
  p.b.stride_batch *= 2;  // every other expert: kernels take them to lie behind each other
  expect_refusal(p, {"b.stride_batch is 16588800, but b is packed weights; it must be 8294400"});
  p.b.stride_batch = 0;
  EXPECT_EQ(validate(p), kFine);
}

TEST(WeightProblem, ServesNvfp4WithAScaleForEachMatrix) {
  GemmProblem p = good_weights(33, 200, 512, 16);
  p.weights_b.format = WeightFormat::nvfp4;
  expect_refusal(p, {"global_scale is missing, but format is nvfp4, which has one; pass it"});
  p.scale_b = {.kind = Scaling::vector};
  EXPECT_EQ(validate(p), kFine);
  EXPECT_EQ(weight_scale_of(p).layout.dtype, DType::e4m3);
  EXPECT_EQ(weight_scale_of(p).rows, 32);
  EXPECT_EQ(scale_b_of(p).rows, 1);
  const auto parsed = parse_problem(problem_text(p));
  ASSERT_TRUE(parsed) << problem_text(p);
  EXPECT_EQ(parsed->weights_b, p.weights_b);
  EXPECT_EQ(parsed->scale_b, p.scale_b);
  p.kernel = KernelFamily::sm90;
  const auto found = candidates(p, device_info(kPlanOnlyH100));
  ASSERT_FALSE(found.empty());
  const GemmConfig& config = found.front().config;
  EXPECT_EQ(weight_lines(config), 8u);
  EXPECT_TRUE(config.epilogue.scaled_rows && !config.epilogue.scaled_columns);
  EXPECT_EQ(column_broadcast_values(config), 0u);
  p.weights_b.group = 32;
  expect_refusal(p, {"group_size is 32, but format is nvfp4; its groups are of 16"});
  p.weights_b = good_weights().weights_b;
  expect_refusal(p, {"global_scale is given, but format is int4, which has none"});
}

TEST(WeightProblem, KernelsAreToldWhereScalesLie) {
  const auto params = [](GemmProblem p) {
    p.kernel = KernelFamily::sm90;
    const auto found = candidates(p, device_info(kPlanOnlyH100));
    GemmParams params;
    set_problem(found.front().config, found.front().problem, params);
    GemmArguments arguments{.alpha = 3};
    set_arguments(found.front().config, transposed(arguments), params);
    return std::pair(found.front().config, params);
  };
  const GemmParams by_256 = params(good_weights(5, 200, 1024, 256)).second;
  EXPECT_EQ(by_256.weights.groups, 4u);
  EXPECT_EQ(by_256.weights.blocks_per_group.divisor, 2u);
  EXPECT_EQ(by_256.epilogue.alpha, 3.0f * (1 << 27));  // bfloat16 elements are made as 2^-27 of themselves
  const auto rows = params(good_weights(5, 200, 1000, 1000)).second;
  EXPECT_EQ(rows.weights.groups, 1u);
  EXPECT_EQ(rows.weights.blocks_per_group.divisor, 8u);
  const auto by_32 = params(good_weights(5, 200, 96, 32));
  EXPECT_EQ(by_32.first.weights.group, 32u);
  EXPECT_EQ(weight_lines(by_32.first), 4u);
  EXPECT_EQ(by_32.second.weights.groups, 3u);
  const auto short_rows = params(good_weights(5, 200, 96, 96));
  EXPECT_EQ(weight_lines(short_rows.first), 1u);
  EXPECT_EQ(short_rows.second.weights.groups, 1u);
}

}  // namespace
}  // namespace cleave
