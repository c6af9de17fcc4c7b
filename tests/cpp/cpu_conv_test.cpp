// Convolutions on the CPU against their definition in double: every kind, every split mode.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cpu_conv_case.h"
#include "cpu_gemm_check.h"

namespace cleave {
namespace {

std::string text(const ConvCase& x) {
  return text(x.problem) + ", " + std::to_string(x.groups) + " groups, " + text(x.conv);
}

/// With `kind`, and with outputs if there are images.
ConvLayout draw_conv(Random& random, Conv kind) {
  ConvLayout conv;
  do {
    conv = draw_geometry(random);
  } while (output_pixels(conv) == 0);
  conv.kind = kind;
  const int64_t sizes[] = {1, random.number(2, 7), random.number(8, 20), random.number(30, 140)};
  conv.channels = random.pick(sizes);
  conv.filters = random.pick(sizes);
  const int64_t pairs = output_pixels(conv) * taps(conv);
  if (pairs * conv.channels * conv.filters > 2'000'000) {
    (random.coin() ? conv.channels : conv.filters) = random.number(1, 3);
  }
  if (pairs * conv.channels * conv.filters > 2'000'000) conv.images = 1;
  return conv;
}

ConvCase draw_case(Random& random, Conv kind, bool integers) {
  const ConvLayout conv = draw_conv(random, kind);
  const int64_t groups = random.number(0, 2) > 0 ? 1 : random.number(2, 4);
  if (kind == Conv::fprop && random.number(0, 3) == 0) {
    const DType output = random.coin() ? DType::i32 : random.pick(kTypes);
    return ConvCase(random, conv, groups, DType::i8, output, integers);
  }
  return ConvCase(random, conv, groups, random.pick(kTypes), random.pick(kTypes), integers);
}

void draw_split(Random& random, SplitKMode mode, ConvCase& x) {
  x.problem.split_k_mode = mode;
  x.problem.split_k_slices = draw_slices(random, mode, x.problem.k);
}

/// Runs and compares all of D's memory: elements with their values, everything else with what was
/// there.
void expect_correct(ConvCase& x, uint32_t threads, bool exact) {
  SCOPED_TRACE(text(x));
  ASSERT_EQ(validate(x.problem), std::vector<std::string>{});
  const auto plan = make_cpu_plan(x.problem, threads);
  PlanWorkspace workspace(*plan);
  Tensor want = x.d();
  const std::vector<double> values = x.expected();
  auto value = values.begin();
  plan->run(x.arguments(), workspace.data(), workspace.size(), nullptr);
  workspace.expect_intact();
  const DType type = x.problem.d.dtype;
  x.for_each([&](int64_t g, int64_t i, int64_t j) {
    const double wanted = *value++;
    if (type == DType::i32) {
      want.set(g, i, j, int32_t(wanted));
    } else if (exact) {
      want.set(g, i, j, float(wanted));
    } else {
      const float got = x.d().get(g, i, j);
      ASSERT_NEAR(got, wanted, tolerance(type, wanted));
      want.set(g, i, j, got);
    }
  });
  expect_same_bytes(x.d(), want);
}

TEST(CpuConv, IntegersAreExact) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    for (const SplitKMode mode : kModes) {
      for (const Conv kind : kConvs) {
        ConvCase x = draw_case(random, kind, true);
        draw_split(random, mode, x);
        expect_correct(x, uint32_t(random.number(1, 4)), true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuConv, RealsAndActivationsAreClose) {
  Random random(2);
  for (int round = 0; round < 12; ++round) {
    for (const SplitKMode mode : kModes) {
      for (const Conv kind : kConvs) {
        ConvCase x = draw_case(random, kind, false);
        draw_split(random, mode, x);
        if (x.problem.a.dtype == DType::i8) continue;
        x.problem.epilogue = epilogue_of(random.pick(kElementwise));
        expect_correct(x, uint32_t(random.number(1, 4)), false);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Images without pixels whose padding makes outputs, no images, no channels: what is left is C and
// bias.
TEST(CpuConv, EmptyTensors) {
  Random random(3);
  for (const SplitKMode mode : kModes) {
    for (const Conv kind : kConvs) {
      for (int which = 0; which < 4; ++which) {
        ConvLayout conv = draw_conv(random, kind);
        conv.axes[2] = {.size = 3, .filter = 2, .pad_begin = 2};
        if (which == 0) conv.images = 0;
        if (which == 1) conv.axes[2].size = 0;
        if (which == 2) conv.channels = 0;
        if (which == 3) conv.filters = 0;
        ConvCase x(random, conv, random.number(1, 3), random.pick(kTypes), random.pick(kTypes), true);
        x.problem.split_k_mode = mode;
        expect_correct(x, 2, true);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Three of the four classes of a 1x1 filter of stride 2 have no tap.
TEST(CpuConv, PixelsThatNoTapReachesGetCAndBias) {
  Random random(4);
  const ConvAxis axis{.size = 7, .filter = 1, .stride = 2};
  for (const SplitKMode mode : kModes) {
    ConvCase x(random, {.kind = Conv::dgrad, .images = 2, .channels = 20, .filters = 300, .axes = {{}, axis, axis}}, 1,
               DType::bf16, DType::f32, true);
    x.problem.has_c = true;
    x.problem.bias = Bias::row;
    x.problem.bias_stride_batch = 0;
    x.problem.epilogue = epilogue_of(Activation::relu);
    x.problem.split_k_mode = mode;
    x.beta = 1;
    expect_correct(x, 3, true);
    for (int64_t channel = 0; channel < 20; ++channel) {  // of pixel (0, 1)
      const float bias = load_element(x.problem.bias_dtype, x.bias.data(), channel);
      ASSERT_EQ(x.d().get(0, 1, channel), std::max(x.c.get(0, 1, channel) + bias, 0.0f));
    }
  }
}

// A weight gradient that is added where it lies.
TEST(CpuConv, CMayBeDExactly) {
  Random random(5);
  for (const SplitKMode mode : kModes) {
    for (const Conv kind : kConvs) {
      ConvCase x(random, draw_conv(random, kind), 2, DType::f16, DType::f32, true);
      x.problem.has_c = true;
      x.problem.c = x.problem.d;
      x.problem.split_k_mode = mode;
      x.beta = 1;
      x.for_each([&](int64_t g, int64_t i, int64_t j) { x.d().set(g, i, j, float(random.number(-9, 9))); });
      x.c = x.d();
      Tensor want = x.d();
      const std::vector<double> values = x.expected();
      auto value = values.begin();
      x.for_each([&](int64_t g, int64_t i, int64_t j) { want.set(g, i, j, float(*value++)); });
      GemmArguments arguments = x.arguments();
      arguments.c = arguments.d;
      make_cpu_plan(x.problem, 3)->run(arguments, nullptr);
      SCOPED_TRACE(text(x));
      expect_same_bytes(x.d(), want);
    }
  }
}

TEST(CpuConv, BitwiseRepeatableForAnyThreadCount) {
  Random random(6);
  // Classes of unequal depth, and enough of them that 16 threads are worth starting.
  const ConvAxis axis{.size = 23, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  for (const SplitKMode mode : kModes) {
    for (const Conv kind : kConvs) {
      for (const int64_t groups : {1, 2}) {
        const ConvLayout conv{.kind = kind, .images = 3, .channels = 70, .filters = 90, .axes = {{}, axis, axis}};
        ConvCase x(random, conv, groups, DType::bf16, DType::f32, false);
        x.problem.split_k_mode = mode;
        x.problem.split_k_slices = mode == SplitKMode::none || random.coin() ? 0 : 7;
        SCOPED_TRACE(text(x));
        std::vector<unsigned char> first;
        for (const uint32_t threads : {1u, 2u, 5u, 16u}) {
          const auto plan = make_cpu_plan(x.problem, threads);
          PlanWorkspace workspace(*plan);
          for (int run = 0; run < 2; ++run) {  // the second finds the counters as the first left them
            std::fill(x.d().bytes.begin(), x.d().bytes.end(), 0xEE);
            plan->run(x.arguments(), workspace.data(), workspace.size(), nullptr);
            workspace.expect_intact();
            if (first.empty()) first = x.d().bytes;
            ASSERT_TRUE(x.d().bytes == first) << threads << " threads, run " << run;
          }
        }
      }
    }
  }
}

TEST(CpuConv, OneByOneIsTheDenseProduct) {
  Random random(7);
  const ConvAxis axis{.size = 9};
  for (const SplitKMode mode : kModes) {
    for (const Conv kind : kConvs) {
      const ConvLayout conv{.kind = kind, .images = 3, .channels = 150, .filters = 170, .axes = {{}, axis, axis}};
      ConvCase x(random, conv, 2, DType::f32, DType::f32, false);
      x.problem.split_k_mode = mode;
      make_cpu_plan(x.problem, 2)->run(x.arguments(), nullptr);
      const Tensor gathered = x.d();
      x.problem.conv = {};
      std::fill(x.d().bytes.begin(), x.d().bytes.end(), 0xEE);
      make_cpu_plan(x.problem, 2)->run(x.arguments(), nullptr);
      SCOPED_TRACE(text(x));
      expect_same_bytes(gathered, x.d());
    }
  }
}

/// Zeros that take memory only where they are written.
class SparseFloats {
 public:
  explicit SparseFloats(size_t count)
      : bytes_(count * sizeof(float)),
        memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~SparseFloats() {
    if (mapped()) munmap(memory_, bytes_);
  }
  SparseFloats(const SparseFloats&) = delete;
  bool mapped() const { return memory_ != MAP_FAILED; }
  float* data() { return static_cast<float*>(memory_); }

 private:
  size_t bytes_;
  void* memory_;
};

TEST(CpuConv, PixelsMayLieBillionsOfElementsApart) {
  Random random(8);
  constexpr int64_t kPixels = 5, kApart = int64_t(1) << 30, kChannels = 20;
  const ConvAxis axis{.size = kPixels, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  SparseFloats far((kPixels - 1) * kApart + kChannels);
  if (!far.mapped()) GTEST_SKIP() << "16 GiB of addresses are not to be had";
  for (const Conv kind : kConvs) {
    const ConvLayout conv{.kind = kind, .images = 1, .channels = kChannels, .filters = 30, .axes = {{}, {}, axis}};
    ConvCase x(random, conv, 1, DType::f32, DType::f32, true);
    x.problem.has_c = false;
    make_cpu_plan(x.problem, 1)->run(x.arguments(), nullptr);
    Tensor near = x.d();
    const auto for_each_far = [&](const auto& visit) {
      for (int64_t pixel = 0; pixel < kPixels; ++pixel) {
        for (int64_t channel = 0; channel < kChannels; ++channel) {
          visit(far.data()[pixel * kApart + channel], x.x.get(0, pixel, channel));
        }
      }
    };
    for_each_far([](float& there, float here) { there = here; });
    GemmArguments arguments = x.arguments();
    switch (kind) {
      case Conv::dgrad:
        x.problem.d.stride_row = kApart;
        arguments.d = far.data();
        for_each_far([](float& there, float) { there = NAN; });
        break;
      case Conv::fprop:
        x.problem.a.stride_row = kApart;
        arguments.a = far.data();
        break;
      default:
        x.problem.b.stride_row = kApart;
        arguments.b = far.data();
    }
    ASSERT_EQ(validate(x.problem), std::vector<std::string>{});
    make_cpu_plan(x.problem, 1)->run(arguments, nullptr);
    if (kind == Conv::dgrad) {
      for_each_far([](float there, float here) { ASSERT_EQ(there, here); });
    } else {
      expect_same_bytes(x.d(), near);
    }
  }
}

TEST(CpuConv, AutomaticSplitsWeightGradients) {
  const ConvAxis axis{.size = 56, .filter = 3, .pad_begin = 1, .pad_end = 1};
  ConvLayout conv{.kind = Conv::wgrad, .images = 8, .channels = 16, .filters = 16, .axes = {{}, axis, axis}};
  GemmProblem p = implicit_gemm(conv, 1, DType::bf16, DType::bf16);
  p.device = kCpu;
  EXPECT_NE(make_cpu_plan(p, 2)->split_k_mode(), SplitKMode::none);
}

TEST(CpuConv, WhySaysWhatItIsOf) {
  const ConvAxis axis{.size = 56, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  const ConvLayout conv{.kind = Conv::dgrad, .images = 8, .channels = 64, .filters = 64, .axes = {{}, axis, axis}};
  GemmProblem p = implicit_gemm(conv, 1, DType::bf16, DType::bf16);
  p.device = kCpu;
  EXPECT_NE(make_cpu_plan(p, 2)->why().find("of 4 residue classes"), std::string::npos);

  p = implicit_gemm(conv, 2, DType::bf16, DType::bf16);
  p.device = kCpu;
  p.split_k_mode = SplitKMode::stream_k;
  const auto plan = make_cpu_plan(p, 2);
  EXPECT_NE(plan->why().find("leaves the tiles of a strided dgrad in groups whole"), std::string::npos);
  EXPECT_EQ(plan->workspace_size(), 0u);
}

}  // namespace
}  // namespace cleave
