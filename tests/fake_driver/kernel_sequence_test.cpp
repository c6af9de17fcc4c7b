// What plans of several kernels launch, on a driver that is not there.
#include <gtest/gtest.h>

#include <thread>

#include "cleave/moe.h"
#include "cleave/moe/moe_params.h"
#include "cleave/quantize.h"
#include "cleave/quantize/quantize_params.h"
#include "emitted_project.h"

namespace cleave {
namespace {

/// Launches that `run` makes, of kernels with parameters of this type.
template <class Params, class Run>
int launches_of(const Run& run) {
  fake_driver_set_params_bytes(sizeof(Params));
  const int before = fake_driver_last_launch()->count;
  run();
  const int made = fake_driver_last_launch()->count - before;
  fake_driver_set_params_bytes(sizeof(GemmParams));
  return made;
}

QuantizeProblem quantize_problem(int64_t rows) {
  return {.rows = rows,
          .cols = 512,
          .granularity = Granularity::tensor,
          .x = {.dtype = DType::bf16, .stride_row = 512},
          .q = {.dtype = DType::e4m3, .stride_row = 512},
          .scale = {.dtype = DType::f32, .stride_row = 1, .stride_col = 1},
          .device = 0};
}

MoeProblem permute_problem(int64_t tokens) {
  return {.operation = MoeOperation::permute,
          .tokens = tokens,
          .top_k = 2,
          .experts = 8,
          .columns = 64,
          .token = {.dtype = DType::bf16, .stride_row = 64},
          .row = {.dtype = DType::bf16, .stride_row = 72},
          .device = 0};
}

TEST(KernelSequence, QuantizesATensorInTwoLaunches) {
  const auto plan = cleave::plan(quantize_problem(40));
  EXPECT_TRUE(plan->kernel_name().starts_with("measure ")) << plan->kernel_name();
  EXPECT_NE(plan->kernel_name().find(", quantize_rows "), std::string::npos);
  void* const stream = address<void>(9);
  EXPECT_EQ(launches_of<QuantizeParams>([&] { plan->prepare(stream); }), 0);
  const QuantizeArguments arguments{.x = address<void>(0), .q = address<void>(1), .scale = address<float>(2)};
  EXPECT_EQ(launches_of<QuantizeParams>([&] { plan->run(arguments, stream); }), 2);
  const Launch& last = *fake_driver_last_launch();
  const auto& params = last.params<QuantizeParams>();
  EXPECT_EQ(last.stream, stream);
  EXPECT_TRUE(last.programmatic);
  EXPECT_EQ(params.x, arguments.x);
  EXPECT_EQ(params.q, arguments.q);
  EXPECT_EQ(params.scale.data, arguments.scale);
  EXPECT_NE(params.counters, nullptr);
  EXPECT_EQ(params.cols, 40 * 512);  // one long row
  EXPECT_LE(plan->host_bytes(), 4096u);
}

// An edge of a graph that lets a launch begin early costs time behind a kernel that does not let go early.
TEST(KernelSequence, OverlapsOnlyTheLibrarysLaunchesInAGraph) {
  QuantizeProblem problem = quantize_problem(40);
  problem.granularity = Granularity::row;  // one launch
  const auto plan = cleave::plan(problem);
  void* const stream = address<void>(9);
  const QuantizeArguments arguments{.x = address<void>(0), .q = address<void>(1), .scale = address<float>(2)};
  plan->prepare(stream);
  const auto overlaps = [&](void* to) {
    EXPECT_EQ(launches_of<QuantizeParams>([&] { plan->run(arguments, to); }), 1);
    return fake_driver_last_launch()->programmatic;
  };
  fake_driver_set_capture(7);
  EXPECT_FALSE(overlaps(stream)) << "nothing is ahead";
  EXPECT_TRUE(overlaps(stream));
  EXPECT_TRUE(overlaps(stream));
  fake_driver_add_node();
  EXPECT_FALSE(overlaps(stream)) << "behind another's";
  EXPECT_TRUE(overlaps(stream));
  std::thread([&] { EXPECT_FALSE(overlaps(stream)) << "behind another thread's"; }).join();
  fake_driver_set_capture(8);
  fake_driver_add_node();
  EXPECT_FALSE(overlaps(stream)) << "a node of another capture, which may have the old one's address";
  fake_driver_set_capture(0);
  EXPECT_TRUE(overlaps(stream)) << "not captured";
  EXPECT_TRUE(overlaps(nullptr));
}

TEST(KernelSequence, PermutesInTwo) {
  constexpr uint32_t kMany = 40'000;
  const auto plan = cleave::plan(permute_problem(kMany));
  const MoeArguments arguments{.ids = address<void>(0),
                               .offsets = address<int32_t>(1),
                               .indices = address<int32_t>(2),
                               .tokens = address<void>(3),
                               .rows = address<void>(4)};
  EXPECT_EQ(launches_of<MoeParams>([&] { plan->run(arguments, nullptr); }), 2);
  const auto& params = fake_driver_last_launch()->params<MoeParams>();
  EXPECT_EQ(params.slots, 2 * kMany);
  EXPECT_EQ(params.ids, arguments.ids);
  EXPECT_EQ(params.offsets, arguments.offsets);
  EXPECT_EQ(params.indices, arguments.indices);
  EXPECT_EQ(params.tokens, arguments.tokens);
  EXPECT_EQ(params.rows, arguments.rows);
  EXPECT_EQ(params.row_stride, 144);
  EXPECT_NE(params.counters, nullptr);  // several chunks are counted
  ASSERT_NE(params.positions, nullptr);
  EXPECT_EQ(params.counts - reinterpret_cast<const uint32_t*>(params.positions), 2 * kMany);
}

TEST(KernelSequence, LaunchesNothingForNothing) {
  const auto plan = cleave::plan(quantize_problem(0));
  const QuantizeArguments arguments{.scale = address<float>(2)};
  // The scale of an empty tensor is written.
  EXPECT_EQ(launches_of<QuantizeParams>([&] { plan->run(arguments, nullptr); }), 1);
  MoeProblem gather = permute_problem(0);
  gather.operation = MoeOperation::gather;
  const auto none = cleave::plan(gather);
  EXPECT_EQ(none->kernel_name(), "");
  EXPECT_EQ(launches_of<MoeParams>([&] {
              none->prepare(nullptr);
              none->run({}, nullptr);
            }),
            0);
}

}  // namespace
}  // namespace cleave
