// A convolution of one tap launches what the product of its pixels and filters launches: the same kernel with the same
// parameters.
#include "emit_cases.h"
#include "emitted_project.h"
#include "expect_equal.h"
#include "plan/plans/gpu_plan.h"

namespace cleave {
namespace {

GemmProblem one_tap(Conv kind, DType in, DType out, int64_t channels, int64_t filters) {
  return convolution(kind, in, out, channels, filters, 1, 1, false, 1);
}

void expect_equal_launches(const GemmProblem& conv, const GemmProblem& product) {
  const auto own = plan(conv), expected = plan(product);
  EXPECT_EQ(choice_of(*own)->config, choice_of(*expected)->config) << own->kernel_name();
  EXPECT_EQ(own->workspace_size(), expected->workspace_size());
  EXPECT_EQ(own->problem(), conv) << "what arguments are checked against";
  const GemmArguments arguments = some_arguments(conv);
  const Launch x = launch(*own, arguments), y = launch(*expected, arguments);
  EXPECT_EQ(x.blocks, y.blocks);
  EXPECT_EQ(x.threads, y.threads);
  EXPECT_EQ(x.cluster, y.cluster);
  EXPECT_EQ(x.shared_bytes, y.shared_bytes);
  const GemmParams &params = x.params(), &of_product = y.params();
  expect_equal("map_a", params.map_a, of_product.map_a);
  expect_equal("map_b", params.map_b, of_product.map_b);
  expect_equal("map_d", params.map_d, of_product.map_d);
  EXPECT_EQ(params.batched_a, of_product.batched_a);
  EXPECT_EQ(params.batched_b, of_product.batched_b);
  expect_equal(params.size, of_product.size);
  expect_equal(params.schedule, of_product.schedule, false);
  expect_equal(params.epilogue, of_product.epilogue, false);
  expect_equal(params.scales_a, of_product.scales_a, false);
  expect_equal(params.scales_b, of_product.scales_b, false);
  EXPECT_EQ(params.counters, of_product.counters);
  EXPECT_EQ(params.partials, of_product.partials);
}

TEST(ConvProductLaunch, IsTheProducts) {
  constexpr DType bf16 = DType::bf16, f16 = DType::f16, i8 = DType::i8;
  constexpr int64_t kPixels = 8 * 56 * 56;
  expect_equal_launches(with_epilogue(one_tap(Conv::fprop, bf16, bf16, 256, 64)),
                        with_epilogue(product(kPixels, 64, 256, bf16, bf16)));
  expect_equal_launches(with_epilogue(one_tap(Conv::dgrad, f16, f16, 64, 256)),
                        with_epilogue(product(kPixels, 64, 256, f16, f16, 1, true, true)));
  expect_equal_launches(with_function(one_tap(Conv::fprop, f16, f16, 128, 512)),
                        with_function(product(kPixels, 512, 128, f16, f16)));
  expect_equal_launches(split(one_tap(Conv::dgrad, bf16, bf16, 128, 1024), SplitKMode::parallel, 3),
                        split(product(kPixels, 128, 1024, bf16, bf16, 1, true, true), SplitKMode::parallel, 3));
  const ScaleLayout image{.kind = Scaling::vector}, filter{.kind = Scaling::vector, .stride_row = 1};
  GemmProblem conv = scaled(one_tap(Conv::fprop, i8, i8, 128, 256), image, filter);
  GemmProblem matrices = scaled(product(kPixels, 256, 128, i8, i8), image, filter);
  for (GemmProblem* p : {&conv, &matrices}) p->has_scale_d = p->has_amax = true;
  expect_equal_launches(conv, matrices);
}

/// A slice of the channels of wider images, into one of wider outputs.
TEST(ConvProductLaunch, PixelsMayBeFurtherApart) {
  GemmProblem conv = one_tap(Conv::fprop, DType::bf16, DType::bf16, 256, 64);
  GemmProblem matrices = product(conv.m, 64, 256, DType::bf16, DType::bf16);
  for (GemmProblem* p : {&conv, &matrices}) p->a.stride_row = 320, p->d.stride_row = 96;
  expect_equal_launches(conv, matrices);
}

}  // namespace
}  // namespace cleave
