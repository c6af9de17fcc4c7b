// Emitted products launch what the library launches: the same grid with the same parameters. No GPU
// is needed, since the driver is a fake one.
#include <array>

#include "emit_cases.h"
#include "emitted_project.h"
#include "expect_equal.h"
#include "plan/make_plan.h"
#include "plan/plans/gpu_plan.h"
#include "plan/plans/reductions.h"
#include "plan/plans/two_heights.h"

namespace cleave {
namespace {

/// The emitted arguments' values, where the operation has them.
std::string assignments(const GemmProblem& p) {
  const GroupLayout& groups = p.groups;
  const bool grouped = groups.dimension != Grouping::none;
  const bool counts = groups.bounds == GroupBounds::counts;
  std::string text;
  const auto set = [&](bool given, const char* name, const std::string& value) {
    if (given) text += fmt::format("  x.{} = {};\n", name, value);
  };
  const auto pointer = [&](bool given, const char* name, const char* from) {
    set(given, name, fmt::format("static_cast<decltype(x.{})>(probe.arguments.{})", name, from));
  };
  for (const char* name : {"m", "n", "k"}) set(true, name, fmt::format("probe.problem.{}", name));
  set(true, grouped ? "groups" : "batch", "probe.problem.batch");
  set(true, "alpha", "probe.arguments.alpha");
  set(p.has_c, "beta", "probe.arguments.beta");
  for (const char* name : {"a", "b", "d"}) pointer(true, name, name);
  pointer(p.has_c, "c", "c");
  pointer(p.bias != Bias::none, "bias", "bias");
  set(p.bias != Bias::none && p.bias_stride_batch != 0, "batch_stride_bias", "probe.problem.bias_stride_batch");
  pointer(p.scale_a.kind != Scaling::none, "scale_a", "scale_a");
  const bool packed = p.weights_b.format != WeightFormat::none;
  pointer(p.scale_b.kind != Scaling::none, packed ? "global_scale" : "scale_b", "scale_b");
  pointer(packed, "scales", "weight_scale");
  pointer(p.weights_b.has_zero, "zeros", "weight_zero");
  pointer(p.has_zero, "zero_a", "zero_a");
  pointer(p.has_zero, "zero_b", "zero_b");
  pointer(p.has_scale_d, "scale_d", "scale_d");
  pointer(p.has_amax, "amax", "amax");
  pointer(grouped && !counts, "offsets", "group_offsets");
  pointer(grouped && (counts || groups.bounds == GroupBounds::starts), "sizes", "group_sizes");
  return text + function_assignments(p);
}

void expect_equal(const Launch& emitted, const Launch& own, const GemmProblem& p, const GemmConfig& config) {
  EXPECT_EQ(emitted.blocks, own.blocks);
  EXPECT_EQ(emitted.threads, own.threads);
  EXPECT_EQ(emitted.cluster, own.cluster);
  EXPECT_EQ(emitted.shared_bytes, own.shared_bytes);
  EXPECT_EQ(emitted.programmatic, own.programmatic);
  const GemmParams &x = emitted.params(), &y = own.params();
  const bool batched = p.batch > 1;
  if (config.family == KernelFamily::sm90) {
    expect_equal("map_a", x.map_a, y.map_a);
    expect_equal("map_b", x.map_b, y.map_b);
    if (config.store.by_tma) expect_equal("map_d", x.map_d, y.map_d);
    EXPECT_EQ(x.batched_a, y.batched_a);
    EXPECT_EQ(x.batched_b, y.batched_b);
  } else {
    expect_equal(x.a, y.a, batched);
    expect_equal(x.b, y.b, batched);
  }
  expect_equal(x.size, y.size);
  expect_equal(x.schedule, y.schedule, config.schedule.grouping == Grouping::k);
  expect_equal(x.epilogue, y.epilogue, batched);
  if (config.schedule.grouping != Grouping::none) expect_equal(x.groups, y.groups);
  if (has_weights(config)) {
    EXPECT_EQ(x.weights.scales, y.weights.scales);
    EXPECT_EQ(x.weights.zeros, y.weights.zeros);
    EXPECT_EQ(x.weights.stride_k, y.weights.stride_k);
    EXPECT_EQ(x.weights.stride_batch, y.weights.stride_batch);
    EXPECT_EQ(x.weights.groups, y.weights.groups);
    EXPECT_EQ(x.weights.blocks_per_group.divisor, y.weights.blocks_per_group.divisor);
    EXPECT_EQ(x.a.data, y.a.data);
  }
  if (config.epilogue.scaling != Scaling::none) {
    expect_equal(x.scales_a, y.scales_a, batched);
    expect_equal(x.scales_b, y.scales_b, batched);
  }
  if (p.split_k_mode != SplitKMode::none && config.schedule.split != SplitKMode::none &&
      config.schedule.split != SplitKMode::cluster) {
    EXPECT_EQ(x.counters, y.counters);
    EXPECT_EQ(x.partials, y.partials);
  }
}

class EmitLaunch : public testing::TestWithParam<EmitCase> {};

TEST_P(EmitLaunch, IsTheLibrarys) {
  const GemmProblem& problem = GetParam().problem;
  const auto own = plan(problem);
  const GemmConfig& config = choice_of(*own)->config;
  const Project project(GetParam().name, *own, assignments(own->problem()));
  ASSERT_TRUE(project.is_built());
  const GemmArguments arguments = some_arguments(problem);

  const Launch before = *fake_driver_last_reduce();
  const Probe probe = project.call(problem, arguments);
  const Launch join = *fake_driver_last_reduce();
  ASSERT_STREQ(probe.reason, "");
  EXPECT_EQ(probe.workspace_size, own->workspace_size());
  EXPECT_EQ(probe.counter_size, own->counter_size());
  EXPECT_EQ(probe.bytes_asked, own->workspace_size());
  const Launch emitted = *fake_driver_last_launch();
  const Launch expected = launch(*own, arguments);
  EXPECT_EQ(expected.count, emitted.count + 1);
  expect_equal(emitted, expected, problem, config);
  expect_equal_joins(before, join, *fake_driver_last_reduce(), joins_of(*choice_of(*own)).any());
}

std::string name_of(const testing::TestParamInfo<EmitCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Operations, EmitLaunch, testing::ValuesIn(emit_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Reductions, EmitLaunch, testing::ValuesIn(emit_reduction_cases()), name_of);

/// A packed weight in two heights is two launches there, too; one whose tiles fill no wave is one.
TEST(EmitLaunchTwoHeights, AreTheLibrarys) {
  for (const WeightFormat format : {WeightFormat::int4, WeightFormat::nvfp4}) {
    const bool zeros = format == WeightFormat::int4;
    const auto problem_of = [&](int64_t tokens, int64_t rows) {
      const GemmProblem matrices = product(tokens, rows, 4096, DType::bf16, DType::bf16);
      return packed(zeros ? matrices : with_epilogue(matrices), format, zeros ? 128 : 16, zeros);
    };
    const GemmProblem problem = problem_of(256, 28672);
    const auto own = plan(problem);
    const Heights heights = heights_of(*own);
    ASSERT_NE(heights.tall, nullptr) << own->kernel_name();
    const Project project(zeros ? "two_heights" : "two_heights_of_floats", *own, assignments(problem));
    ASSERT_TRUE(project.is_built());
    const GemmArguments arguments = some_arguments(problem);
    const int before = fake_driver_last_launch()->count;
    const Probe probe = project.call(problem, arguments);
    ASSERT_STREQ(probe.reason, "");
    EXPECT_EQ(probe.workspace_size, 0u);
    const Launch emitted = *fake_driver_last_launch();
    EXPECT_EQ(emitted.count, before + 2);
    const Launch expected = launch(*own, arguments);
    EXPECT_EQ(expected.count, emitted.count + 2);
    expect_equal(emitted, expected, problem, heights.rest->config);

    const GemmProblem few = problem_of(256, 2048);
    ASSERT_STREQ(project.call(few, some_arguments(few)).reason, "");
    const Launch alone = *fake_driver_last_launch();
    EXPECT_EQ(alone.count, expected.count + 1);
    expect_equal(alone, launch(*plan_as(few, heights.tall->spec), some_arguments(few)), few, heights.tall->config);
  }
}

/// There are sums over no rows, too, which are zero.
TEST(EmitLaunchReductions, OfAnEmptyDAreWritten) {
  const GemmProblem planned = with_reductions(product(512, 256, 512, DType::bf16, DType::bf16), over_rows());
  const Project project("reduced_empty", *plan(planned), assignments(planned));
  ASSERT_TRUE(project.is_built());
  const GemmProblem empty = with_reductions(product(0, 256, 512, DType::bf16, DType::bf16), over_rows());
  const GemmArguments arguments = some_arguments(empty);
  const Launch before = *fake_driver_last_reduce();
  ASSERT_STREQ(project.call(empty, arguments).reason, "");
  const Launch emitted = *fake_driver_last_reduce();
  plan(empty)->run(arguments, nullptr, 0, nullptr);
  const Launch own = *fake_driver_last_reduce();
  ASSERT_EQ(emitted.count, before.count + 1);
  ASSERT_EQ(own.count, emitted.count + 1);
  EXPECT_EQ(emitted.blocks, own.blocks);
  const PartialResults &x = emitted.params<ReduceParams>().outputs[0], &y = own.params<ReduceParams>().outputs[0];
  EXPECT_EQ(x.results, y.results);
  EXPECT_EQ(x.lines, y.lines);
  EXPECT_EQ(x.units, 0u);
}

/// The kernel of one plan, given the sizes of others, launches as if planned with that kernel; and
/// what is remembered of a call serves its like alone.
TEST(EmitLaunchSizes, FollowThePlannersRules) {
  const GemmProblem planned = product(4096, 4096, 4096, DType::bf16, DType::bf16);
  const auto own = plan(planned);
  const Spec spec = choice_of(*own)->spec;
  const Project project("any_sizes", *own, assignments(own->problem()));
  ASSERT_TRUE(project.is_built());
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1024, 512, 256}, {128, 8192, 72}, {4000, 24, 8000}, {9, 16, 4096}}) {
    const GemmProblem problem = product(m, n, k, DType::bf16, DType::bf16);
    const auto other = plan_as(problem, spec);
    const GemmConfig& config = choice_of(*other)->config;
    ASSERT_EQ(config, choice_of(*own)->config);
    for (const int64_t moved : {0, 4096}) {
      GemmArguments arguments = some_arguments(problem);
      arguments.a = static_cast<const char*>(arguments.a) + moved;
      arguments.alpha += float(moved);
      ASSERT_STREQ(project.call(problem, arguments).reason, "");
      const Launch emitted = *fake_driver_last_launch();
      expect_equal(emitted, launch(*other, arguments), problem, config);
    }
  }
}

/// Sizes that the kernel does not serve are refused, and nothing is launched.
TEST(EmitLaunchSizes, AreRefusedWithTheReason) {
  const auto own = plan(product(4096, 4096, 4096, DType::bf16, DType::bf16));
  const Project project("some_sizes", *own, assignments(own->problem()));
  ASSERT_TRUE(project.is_built());
  const int before = fake_driver_last_launch()->count;
  const auto reason = [&](const GemmProblem& problem, int64_t misalignment = 0) {
    GemmArguments arguments = some_arguments(problem);
    arguments.a = static_cast<const char*>(arguments.a) + misalignment;
    return std::string(project.call(problem, arguments).reason);
  };
  const auto sized = [](int64_t m, int64_t n, int64_t k) { return product(m, n, k, DType::bf16, DType::bf16); };
  EXPECT_NE(reason(sized(64, 64, 0)).find("k is 0"), std::string::npos);
  EXPECT_NE(reason(sized(-1, 64, 64)).find("m is -1"), std::string::npos);
  EXPECT_NE(reason(sized(64, 64, 65)).find("lda is 65"), std::string::npos);
  EXPECT_NE(reason(sized(64, 60, 64)).find("multiple of 8"), std::string::npos);
  EXPECT_NE(reason(sized(64, 64, 64), 2).find("a is at"), std::string::npos);
  EXPECT_EQ(fake_driver_last_launch()->count, before);
  EXPECT_EQ(reason(sized(0, 64, 64)), "");
  EXPECT_EQ(fake_driver_last_launch()->count, before) << "an empty D needs no launch";
}

}  // namespace
}  // namespace cleave
