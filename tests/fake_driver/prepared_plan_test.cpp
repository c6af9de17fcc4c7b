// What a plan that has been prepared keeps: its parameters, with tensor maps, are made with a driver.
#include <gtest/gtest.h>
#include <malloc.h>
#include <bit>
#include <set>
#include <string>

#include "cleave/conv.h"
#include "emitted_project.h"
#include "plan/make_plan.h"
#include "plan/plans/gpu_plan.h"
#include "runtime/kernel_cache.h"

namespace cleave {
namespace {

MatrixLayout rows_of(int64_t columns) {
  return {.stride_row = columns};
}

GemmProblem product(int64_t m) {
  GemmProblem p{.m = m, .n = 4096, .k = 4096};
  p.a = rows_of(4096);
  p.b = {.stride_row = 1, .stride_col = 4096};
  p.c = p.d = rows_of(4096);
  return p;
}

GemmProblem dgrad(int64_t images, int32_t stride) {
  const ConvAxis axis{.size = 56, .filter = 3, .stride = stride, .pad_begin = 1, .pad_end = 1};
  return implicit_gemm(
      {.kind = Conv::dgrad, .images = images, .channels = 128, .filters = 128, .axes = {{}, axis, axis}}, 1,
      DType::bf16, DType::bf16);
}

struct Kept {
  size_t bytes, said;  // host_bytes()
};

/// What the second plan keeps: the first has the kernel loaded, which is not the plan's.
Kept bytes_kept(const GemmProblem& first, const GemmProblem& second) {
  const auto loaded = plan(first);
  loaded->prepare(nullptr);
  const Spec spec = choice_of(*loaded)->spec;
  plan_as(second, spec)->prepare(nullptr);
  const size_t before = mallinfo2().uordblks;
  const auto kept = plan_as(second, spec);
  kept->prepare(nullptr);
  const size_t after = mallinfo2().uordblks;
  return {after - before, kept->host_bytes()};
}

TEST(PreparedPlan, KeepsWhatItSays) {
  constexpr size_t kNoise = 1024;  // what the allocator rounds up: it may hand out a larger chunk
  const Kept dense = bytes_kept(product(512), product(640));
  EXPECT_LE(dense.bytes, dense.said + kNoise);
  EXPECT_LE(dense.said, 4096u);
  for (const int32_t stride : {1, 2, 3, 4, 5, 7}) {
    const Kept kept = bytes_kept(dgrad(8, stride), dgrad(9, stride));
    EXPECT_LE(kept.bytes, kept.said + kNoise) << stride;
    const uint32_t classes = stride == 1 ? 0 : std::bit_ceil(uint32_t(stride * stride));
    const uint32_t turned = stride == 1 ? 1024 : 0;  // read the other way, it has two problems
    EXPECT_LE(kept.said, 4096u + turned + 512u * classes) << stride;
  }
}

/// What `cleave.build_pack` packs by default.
TEST(PreparedPlan, ItsKernelsAreThoseThatAreLoaded) {
  const auto prepared = plan(product(768));
  prepared->prepare(nullptr);
  std::set<std::string> loaded;
  for (const auto& [text, arch] : loaded_sources()) {
    EXPECT_EQ(arch, "sm_90a");
    EXPECT_TRUE(loaded.insert(text).second);
  }
  for (const std::string& source : prepared->kernel_sources()) EXPECT_TRUE(loaded.contains(source));
}

}  // namespace
}  // namespace cleave
