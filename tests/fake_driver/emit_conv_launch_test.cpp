// Emitted convolutions launch what the library launches: the same grid with the same parameters.
#include "emit_cases.h"
#include "emitted_project.h"
#include "expect_equal.h"
#include "launch/conv_maps.h"
#include "launch/conv_params.h"
#include "plan/catalogue/candidates.h"
#include "plan/make_plan.h"
#include "plan/plans/gpu_plan.h"
#include "plan/plans/reductions.h"

namespace cleave {
namespace {

/// The emitted arguments' values, where the operation has them.
std::string assignments(const GemmProblem& p) {
  struct Roles {
    const char *a, *b, *d;
  };
  const Roles roles = p.conv.kind == Conv::fprop   ? Roles{"x", "w", "y"}
                      : p.conv.kind == Conv::dgrad ? Roles{"y", "w", "x"}
                                                   : Roles{"y", "x", "w"};
  std::string text;
  const auto set = [&](const char* name, const std::string& value) {
    text += fmt::format("  x.{} = {};\n", name, value);
  };
  const char* const axes[] = {"depth", "height", "width"};
  set("images", "probe.problem.conv.images");
  for (int i = p.conv.axes[0] == ConvAxis{} ? 1 : 0; i < 3; ++i)
    set(axes[i], fmt::format("probe.problem.conv.axes[{}].size", i));
  set(roles.a, "probe.arguments.a");
  set(roles.b, "probe.arguments.b");
  set(roles.d, "probe.arguments.d");
  set("alpha", "probe.arguments.alpha");
  if (p.has_c) set("c", "probe.arguments.c");
  if (p.has_c) set("beta", "probe.arguments.beta");
  if (p.bias != Bias::none) set("bias", "probe.arguments.bias");
  for (const char* const scale : {"scale_a", "scale_b"})
    if (p.scale_a.kind != Scaling::none) set(scale, fmt::format("probe.arguments.{}", scale));
  if (p.has_scale_d) set("scale_d", "probe.arguments.scale_d");
  if (p.has_amax) set("amax", "probe.arguments.amax");
  return text + function_assignments(p);
}

void expect_equal(const Grid& x, const Grid& y) {
  EXPECT_EQ(x.size, y.size);
  for (uint32_t i = 0; i < kConvAxes; ++i) EXPECT_EQ(x.extent[i], y.extent[i]);
  expect_equal(x.per_image, y.per_image);
  expect_equal(x.per_plane, y.per_plane);
  expect_equal(x.per_line, y.per_line);
}

void expect_equal(const ConvClass& x, const ConvClass& y) {
  EXPECT_EQ(x.rows, y.rows);
  expect_equal(x.pixels, y.pixels);
  expect_equal(x.taps, y.taps);
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    EXPECT_EQ(x.origin[i], y.origin[i]);
    EXPECT_EQ(x.row_stride[i], y.row_stride[i]);
    EXPECT_EQ(x.tap_stride[i], y.tap_stride[i]);
    EXPECT_EQ(x.filter_stride[i], y.filter_stride[i]);
    EXPECT_EQ(x.output_stride[i], y.output_stride[i]);
  }
  EXPECT_EQ(x.first_tap, y.first_tap);
  EXPECT_EQ(x.first_output, y.first_output);
  EXPECT_EQ(x.outputs_per_image, y.outputs_per_image);
  EXPECT_EQ(x.tiles_before, y.tiles_before);
  EXPECT_EQ(x.tiles, y.tiles);
  EXPECT_EQ(x.k_blocks, y.k_blocks);
  EXPECT_EQ(x.line_before, y.line_before);
}

void expect_equal(const ColumnRuns& x, const ColumnRuns& y) {
  expect_equal(x.length, y.length);
  expect_equal(x.residues, y.residues);
}

void expect_equal(const FusedClasses& x, const FusedClasses& y) {
  expect_equal(x.pixels, y.pixels);
  expect_equal(x.lines, y.lines);
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    for (uint32_t r = 0; r < kMostResidues; ++r) {
      EXPECT_EQ(x.axes[i][r].shift, y.axes[i][r].shift);
      EXPECT_EQ(x.axes[i][r].taps, y.axes[i][r].taps);
      EXPECT_EQ(x.axes[i][r].first_tap, y.axes[i][r].first_tap);
    }
    EXPECT_EQ(x.whole[i], y.whole[i]);
    EXPECT_EQ(x.tap_stride[i], y.tap_stride[i]);
    EXPECT_EQ(x.filter_stride[i], y.filter_stride[i]);
    EXPECT_EQ(x.output_stride[i], y.output_stride[i]);
  }
}

/// What convolutions have beside a product's parameters.
template <class Params>
void expect_equal_geometry(const Params& x, const Params& y) {
  for (uint32_t i = 0; i < kConvAxes; ++i) EXPECT_EQ(x.extent[i], y.extent[i]);
  EXPECT_EQ(x.channels, y.channels);
  expect_equal(x.per_tap, y.per_tap);
  EXPECT_EQ(x.tap_stride, y.tap_stride);
  expect_equal(x.columns, y.columns);
  ASSERT_EQ(x.class_count, y.class_count);
  for (uint32_t i = 0; i < x.class_count; ++i) expect_equal(x.classes[i], y.classes[i]);
}

/// The maps that there are, in order.
std::vector<TensorMap> maps_of(const Choice& choice, Launch& launch) {
  const GemmConfig& c = choice.config;
  std::vector<TensorMap> maps;
  if (c.family != KernelFamily::sm90) return maps;
  const auto keep = [&](TensorMap& map, const void*, const auto&) { maps.push_back(map); };
  visit_matrix_maps(c, choice.problem, launch.params(), keep);
  visit_params(c, launch.memory, [&](auto* params) { visit_class_maps(c, choice.problem, *params, keep); });
  return maps;
}

void expect_equal_launches(Launch& emitted, Launch& own, const Choice& choice) {
  const GemmConfig& c = choice.config;
  EXPECT_EQ(emitted.blocks, own.blocks);
  EXPECT_EQ(emitted.threads, own.threads);
  EXPECT_EQ(emitted.cluster, own.cluster);
  EXPECT_EQ(emitted.shared_bytes, own.shared_bytes);
  const GemmParams &x = emitted.params(), &y = own.params();
  const bool batched = choice.problem.batch > 1, classes = c.schedule.grouping == Grouping::classes;
  expect_equal(x.a, y.a, batched);
  expect_equal(x.b, y.b, batched);
  expect_equal(x.size, y.size);
  EXPECT_EQ(x.batched_a, y.batched_a);
  EXPECT_EQ(x.batched_b, y.batched_b);
  // What the schedule says of K is not used of classes, but for the line that stream_k cuts.
  expect_equal(x.schedule, y.schedule, classes);
  expect_equal(x.schedule.stream_partition, y.schedule.stream_partition);
  expect_equal(x.epilogue, y.epilogue, batched);
  expect_equal(x.scales_a, y.scales_a, batched);
  expect_equal(x.scales_b, y.scales_b, batched);
  if (c.schedule.split != SplitKMode::none && c.schedule.split != SplitKMode::cluster) {
    EXPECT_EQ(x.counters, y.counters);
    EXPECT_EQ(x.partials, y.partials);
  }
  visit_params(c, emitted.memory, [&](auto* params) {
    using Params = std::remove_pointer_t<decltype(params)>;
    expect_equal_geometry(*params, own.params<Params>());
  });
  const auto maps = maps_of(choice, emitted), own_maps = maps_of(choice, own);
  ASSERT_EQ(maps.size(), own_maps.size());
  for (size_t i = 0; i < maps.size(); ++i) expect_equal("map", maps[i], own_maps[i]);
}

class EmitConvLaunch : public testing::TestWithParam<EmitCase> {
 protected:
  ~EmitConvLaunch() override { fake_driver_set_params_bytes(sizeof(GemmParams)); }
};

/// The library's plan with the kernel that is emitted: one for images of any size.
std::shared_ptr<const GemmPlan> emitted_plan(const GemmProblem& problem) {
  const auto own = plan(problem);
  const auto of_one_size = [](const Choice& c) { return c.spec.product || c.config.family == KernelFamily::direct; };
  if (!of_one_size(*choice_of(*own))) return own;
  auto others = candidates(problem, device_info(problem.device), Kernels::any_images);
  std::erase_if(others, of_one_size);
  return plan_as(problem, others.front().spec);
}

/// The planned sizes, others that the kernel serves, and the first again: what is remembered of a
/// call is used for its like alone.
TEST_P(EmitConvLaunch, IsTheLibrarys) {
  const GemmProblem& planned = GetParam().problem;
  const auto own = emitted_plan(planned);
  const Choice& choice = *choice_of(*own);
  fake_driver_set_params_bytes(params_bytes(choice.config));
  const Project project(GetParam().name, *plan(planned), assignments(planned));
  ASSERT_TRUE(project.is_built());

  GemmProblem fewer = planned;
  fewer.conv.images = 3;
  fewer.conv.axes[2].size += 5;
  const GemmProblem sized = implicit_gemm(fewer.conv, planned.batch, planned.a.dtype, DType::f32);
  fewer.m = sized.m;
  fewer.k = sized.k;
  int64_t moved = 0;  // bytes
  for (const GemmProblem& problem : {planned, planned, fewer, planned}) {
    const auto other = problem == planned ? own : plan_as(problem, choice.spec);
    if (problem != planned && choice_of(*other)->config != choice.config) continue;
    GemmArguments arguments = some_arguments(problem);
    arguments.a = static_cast<const char*>(arguments.a) + (moved += 4096);
    arguments.d = static_cast<char*>(arguments.d) + moved;
    const Launch before = *fake_driver_last_reduce();
    const Probe probe = project.call(problem, arguments);
    const Launch join = *fake_driver_last_reduce();
    ASSERT_STREQ(probe.reason, "");
    Launch emitted = *fake_driver_last_launch();
    EXPECT_EQ(probe.workspace_size, other->workspace_size());
    EXPECT_EQ(probe.counter_size, other->counter_size());
    EXPECT_EQ(probe.bytes_asked, other->workspace_size());
    Launch expected = launch(*other, arguments);
    expect_equal_launches(emitted, expected, *choice_of(*other));
    expect_equal_joins(before, join, *fake_driver_last_reduce(), joins_of(*choice_of(*other)).any());
  }
}

std::string name_of(const testing::TestParamInfo<EmitCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Operations, EmitConvLaunch, testing::ValuesIn(emit_conv_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Reductions, EmitConvLaunch, testing::ValuesIn(emit_conv_reduction_cases()), name_of);

/// What the kernel does not serve is refused, and nothing is launched.
TEST(EmitConvLaunchSizes, AreRefusedWithTheReason) {
  const GemmProblem planned = convolution(Conv::fprop, DType::bf16, DType::bf16, 64, 64, 2);
  const Project project("some_images", *plan(planned), assignments(planned));
  ASSERT_TRUE(project.is_built());
  const int before = fake_driver_last_launch()->count;
  const auto reason = [&](int64_t images, int32_t height, int64_t misalignment = 0) {
    GemmProblem problem = planned;
    problem.conv.images = images;
    problem.conv.axes[1].size = height;
    GemmArguments arguments = some_arguments(problem);
    arguments.b = static_cast<const char*>(arguments.b) + misalignment;
    return std::string(project.call(problem, arguments).reason);
  };
  EXPECT_NE(reason(-1, 56).find("images is -1"), std::string::npos);
  EXPECT_NE(reason(8, 0).find("height is 0"), std::string::npos);
  EXPECT_NE(reason(8, 56, 2).find("w is at"), std::string::npos);
  EXPECT_NE(reason(INT32_MAX, 56).find("fewer images"), std::string::npos);
  EXPECT_EQ(reason(0, 56), "");
  EXPECT_EQ(fake_driver_last_launch()->count, before) << "no images need no launch";
}

}  // namespace
}  // namespace cleave
