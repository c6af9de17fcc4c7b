// What plans cost in host memory. Nothing needs a GPU: plans are for an H100 that is not there.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <fstream>
#include <memory>
#include <set>
#include <vector>

#include "all_kernels/typical_problems.h"
#include "cleave/conv.h"
#include "cleave/device.h"
#include "cleave/epilogue.h"
#include "cleave/moe.h"
#include "cleave/quantize.h"
#include "cleave/route.h"
#include "cleave/router_logits.h"
#include "gemm_problems.h"
#include "plan/catalogue/candidates.h"
#include "plan/catalogue/tiles.h"
#include "plan/make_plan.h"
#include "problem/problem.h"
#include "process/plan_map.h"

namespace cleave {
namespace {

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * size_t(sysconf(_SC_PAGESIZE));
}

size_t allocated_bytes() {
  return mallinfo2().uordblks;
}

/// A language model's layer. With the split given, planning considers fewer candidates.
GemmProblem layer(int64_t m, int64_t n, int64_t k, int device = kPlanOnlyH100) {
  GemmProblem p{.m = m, .n = n, .k = k, .split_k_mode = SplitKMode::none, .device = device};
  p.a = row_major(k);
  p.b = column_major(k);
  p.c = p.d = row_major(n);
  return p;
}

GemmProblem strided_dgrad(int32_t stride, int device) {
  const ConvAxis axis{.size = 28, .filter = 3, .stride = stride, .pad_begin = 1, .pad_end = 1};
  ConvLayout conv{.kind = Conv::dgrad, .images = 8, .channels = 128, .filters = 128, .axes = {{}, axis, axis}};
  GemmProblem p = implicit_gemm(conv, 1, DType::bf16, DType::bf16);
  p.device = device;
  return p;
}

TEST(PlanMemory, TwentyThousandShapes) {
  constexpr size_t kMiB = 1 << 20;
  plan(layer(1, 4096, 4096));
  const size_t before = resident_bytes();
  std::set<std::string> kernels;
  for (int64_t m = 1; m <= 10'000; ++m) {
    GemmProblem one = layer(m, 4096, 4096), other = layer(m, 1408, 2048);
    // Few tiles to choose from, for most: planning takes its time.
    if (m % 10 != 0) one.kernel = other.kernel = KernelFamily::portable;
    const auto planned = {plan(one), plan(other)};
    if (m % 30 == 0) {
      for (const auto& each : planned) kernels.insert(each->kernel_source());
    }
  }
  EXPECT_LT(resident_bytes(), before + 64 * kMiB);
  // Loaded kernels stay for ever: sizes must not make more of them than one for each tile of the catalogue, in
  // whatever order and with whatever shared loads.
  const std::vector<Spec> listed = tiles(KernelFamily::sm90, true);
  const auto is_alone = [](const Spec& s) { return !s.transposed && s.multicast_m * s.multicast_n == 1; };
  EXPECT_LT(ptrdiff_t(kernels.size()), std::ranges::count_if(listed, is_alone));
}

TEST(PlanMemory, OneMapHoldsAllPlansOfAKind) {
  constexpr size_t kSmaller = kMostAcrossPlanBytes + kMostQuantizePlanBytes + kMostMoePlanBytes +
                              2 * kMostRoutePlanBytes + kMostLoraPlanBytes + kMostFoldPlanBytes;
  EXPECT_LE(kMostGemmPlanBytes + kSmaller, size_t(32) << 20);
}

TEST(PlanMemory, APlanKeepsFourKilobytes) {
  for (const int device : {kCpu, kPlanOnlyH100}) {
    for (const int64_t m : {1, 100, 5000}) {
      GemmProblem p = layer(m, 4096, 16384, device);
      EXPECT_LE(plan(p)->host_bytes(), 4096u);
      p.split_k_mode = SplitKMode::automatic;
      EXPECT_LE(plan(p)->host_bytes(), 4096u);
    }
    for (const int32_t stride : {1, 2, 3, 4, 5}) {
      const GemmProblem p = strided_dgrad(stride, device);
      const uint32_t classes = stride == 1 ? 0 : std::bit_ceil(uint32_t(stride * stride));
      EXPECT_LE(plan(p)->host_bytes(), 4096u + 512u * classes) << stride;
    }
  }
}

/// Heap that stays taken by what `make` returns, beside what making the like of it once leaves behind.
template <class Make>
size_t bytes_kept(const Make& make) {
  make();  // what is made once
  const size_t before = allocated_bytes();
  [[maybe_unused]] const auto kept = make();
  return allocated_bytes() - before;
}

TEST(PlanMemory, APlanSaysWhatItKeeps) {
  int64_t m = 1000;
  const auto check = [&](const char* what, auto make_problem) {
    forget_plans();  // those of other tests, which might go to make room, or have the map grow just now
    std::shared_ptr<const GemmPlan> last;
    const size_t kept = bytes_kept([&] { return last = plan(make_problem(++m)); });
    // What the map and its key take, and what a launch would pass, comes to less than this.
    EXPECT_LE(kept, last->host_bytes() + 2048) << what;
  };
  for (const int device : {kCpu, kPlanOnlyH100}) {
    check("a product", [&](int64_t rows) { return layer(rows, 4096, 4096, device); });
    check("a strided dgrad", [&](int64_t rows) {
      GemmProblem p = strided_dgrad(3, device);
      p.conv.images = rows;
      p = implicit_gemm(p.conv, 1, DType::bf16, DType::bf16);
      p.device = device;
      return p;
    });
  }
}

TEST(PlanMemory, CandidatesAreWorkedOutOnRequest) {
  GemmProblem p = layer(64, 4096, 4096);
  p.split_k_mode = SplitKMode::automatic;
  const auto made = plan(p);
  const std::vector<Candidate> candidates = made->candidates();
  ASSERT_GT(candidates.size(), 100u);
  EXPECT_EQ(candidates.front().kernel, made->kernel_name());
  const size_t before = allocated_bytes();
  made->candidates();
  EXPECT_LT(allocated_bytes(), before + 4096);  // a list of them takes twenty times that
}

/// Products with everything that a plan may have to remember.
std::vector<GemmProblem> products_of_all_forms() {
  using namespace typical;
  const GemmProblem plain = product(DType::bf16, DType::bf16, DType::bf16);
  const GemmProblem blocks = scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, kSquares);
  const GemmProblem packed = weights(DType::bf16, DType::bf16, 128, true);
  const GemmProblem image = convolution(Conv::fprop, DType::bf16, DType::bf16, 2);
  GemmProblem found = product(DType::bf16, DType::bf16, DType::e4m3);
  found.scale_out = kLines;
  found.scale_out.stride_k = found.m;
  GemmProblem invariant = plain;
  invariant.deterministic = Determinism::batch_invariant;
  return {plain,
          blocks,
          found,
          invariant,
          packed,
          image,
          grouped(plain, Grouping::m),
          grouped(blocks, Grouping::m),
          grouped(packed, Grouping::m),
          with(Precision::tf32x3, product(DType::f32, DType::f32, DType::f32)),
          with_function(plain),
          with_function(grouped(plain, Grouping::m)),
          with_function(image),
          with_gate(plain),
          with_reductions(plain),
          with_reductions(grouped(plain, Grouping::m))};
}

TEST(PlanMemory, ProductsOfAllFormsKeepFourKilobytes) {
  for (GemmProblem p : products_of_all_forms()) {
    for (const int device : {kCpu, kPlanOnlyH100}) {
      p.device = device;
      EXPECT_LE(plan(p)->host_bytes(), 4096u) << plan(p)->kernel_name();
    }
  }
}

TEST(PlanMemory, PlansOfOtherKindsKeepFourKilobytes) {
  const MatrixLayout rows = row_major(256);
  for (const int device : {kCpu, kPlanOnlyH100}) {
    QuantizeProblem q{.rows = 128, .cols = 256, .x = rows, .q = row_major(256, 0, DType::i8)};
    q.scale = {.dtype = DType::f32, .stride_row = 1, .stride_col = 0};
    MoeProblem moe{.operation = MoeOperation::permute, .tokens = 64, .top_k = 2, .experts = 8, .columns = 256};
    moe.token = moe.row = rows;
    RouteProblem route{.tokens = 64, .experts = 8, .top_k = 2, .logits = row_major(8)};
    RouterLogitsProblem logits{.tokens = 64, .experts = 8, .features = 256, .x = rows, .weight = rows};
    q.device = moe.device = route.device = logits.device = device;
    EXPECT_LE(plan(q)->host_bytes(), 4096u);
    EXPECT_LE(plan(moe)->host_bytes(), 4096u);
    EXPECT_LE(plan(route)->host_bytes(), 4096u);
    EXPECT_LE(plan(logits)->host_bytes(), 4096u);
  }
}

/// Functions stay, since problems and kernels refer to them.
TEST(PlanMemory, AnEpilogueFunctionKeepsTwoKilobytes) {
  constexpr int kFunctions = 1000;
  int made = 0;
  const size_t kept = bytes_kept([&] {
    for (int i = 0; i < kFunctions; ++i)
      epilogue_function(fmt::format("bias row\n%0 = add acc bias\n%1 = multiply %0 {}\nd = maximum %1 0", ++made));
    return made;
  });
  EXPECT_LE(kept, kFunctions * 2048u);
}

}  // namespace
}  // namespace cleave
