// The kernels of mixtures of experts: how the work is dealt to threads, and that NVRTC makes them
// without spills.

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cleave/device.h"
#include "expect_no_spills.h"
#include "jit/compiler.h"
#include "jit/nvrtc.h"
#include "moe/launches.h"
#include "moe/problem.h"

namespace cleave {
namespace {

MoeProblem problem_of(MoeOperation operation, int64_t tokens, int64_t top_k, int64_t columns,
                      DType type = DType::bf16) {
  const MatrixLayout layout{.dtype = type, .stride_row = columns};
  return {.operation = operation,
          .tokens = tokens,
          .top_k = top_k,
          .experts = 64,
          .columns = columns,
          .token = layout,
          .row = layout,
          .row_grad = layout,
          .has_weights = operation == MoeOperation::combine_backward,
          .device = kPlanOnlyH100};
}

/// Rows of 8 bits.
MoeProblem scaled_problem_of(MoeOperation operation, int64_t tokens, int64_t top_k, int64_t columns, DType type,
                             DType wide) {
  MoeProblem p = problem_of(operation, tokens, top_k, columns, wide);
  p.scaled = true;
  p.row.dtype = type;
  p.row.alignment = 16;
  return p;
}

std::vector<MoeKernel> kernels_of(const MoeProblem& problem) {
  std::vector<MoeKernel> kernels;
  for (const MoeLaunch& launch : moe_launches(problem)) kernels.push_back(launch.kernel);
  return kernels;
}

TEST(MoeLaunches, OffsetsAreOne) {
  for (const int64_t tokens : {0, 1, 4096, 1 << 24}) {
    EXPECT_EQ(kernels_of(problem_of(MoeOperation::offsets, tokens, 8, 0)), std::vector{MoeKernel::count});
  }
}

TEST(MoeLaunches, FollowOneAnother) {
  EXPECT_EQ(kernels_of(problem_of(MoeOperation::permute, 4096, 8, 2048)),
            (std::vector{MoeKernel::rank, MoeKernel::scatter}));
  EXPECT_EQ(kernels_of(problem_of(MoeOperation::combine, 4096, 8, 2048)),
            (std::vector{MoeKernel::invert, MoeKernel::combine}));
  EXPECT_EQ(kernels_of(problem_of(MoeOperation::permute, 0, 8, 2048)), std::vector{MoeKernel::rank});
  EXPECT_TRUE(kernels_of(problem_of(MoeOperation::combine, 0, 8, 2048)).empty());
  EXPECT_EQ(kernels_of(scaled_problem_of(MoeOperation::permute, 4096, 8, 2048, DType::e4m3, DType::bf16)),
            (std::vector{MoeKernel::rank, MoeKernel::quantize}));
}

/// However many slots there are; more than one CTA would rank quickly are in several.
TEST(MoeLaunches, SortingIsOne) {
  for (const int64_t tokens : {0, 1, 256, 257, 4096, 4097, 1 << 16, (1 << 28) - 1}) {
    const auto launches = moe_launches(problem_of(MoeOperation::sort, tokens, 8, 0));
    ASSERT_EQ(launches.size(), 1u);
    const uint32_t ctas = launches[0].shape.grid.x;
    EXPECT_EQ(ctas > 1, tokens > 256) << tokens;
    EXPECT_LE(ctas, kMostChunks);
    EXPECT_EQ(moe_scratch(launches).workspace().counters, ctas > 1 ? sizeof(ChunkCounters) : 0);
  }
}

/// Rows of 8 bits and tokens in as many values at a time, as both are aligned to.
TEST(MoeLaunches, ScaledRowsTakeWhatTokensAllow) {
  const auto width_of = [](int64_t columns, uint32_t of_tokens, uint32_t of_rows, DType wide) {
    MoeProblem p = scaled_problem_of(MoeOperation::permute, 100, 8, columns, DType::e4m3, wide);
    p.token.alignment = of_tokens;
    p.row.alignment = of_rows;
    const MoeLaunch launch = moe_launches(p).back();
    EXPECT_GE(uint64_t(launch.shape.grid.x) * kRowThreads / kScaleLanes,
              uint64_t(100 * ceil_div(columns, int64_t(128))));
    EXPECT_EQ(launch.params.row_bytes % launch.config.width, 0u);
    return launch.config.width;
  };
  EXPECT_EQ(width_of(2048, 16, 16, DType::bf16), 16u);
  EXPECT_EQ(width_of(2048, 16, 4, DType::bf16), 4u);
  EXPECT_EQ(width_of(2048, 8, 16, DType::bf16), 4u);
  EXPECT_EQ(width_of(2048, 4, 16, DType::f32), 1u);
  EXPECT_EQ(width_of(2040, 16, 16, DType::bf16), 8u);
  EXPECT_EQ(width_of(2047, 16, 16, DType::bf16), 1u);
}

/// Every slot is in a chunk, every byte of a row in a piece; accesses are aligned, and shared memory
/// is what a kernel may have without asking.
TEST(MoeLaunches, DealAllTheWork) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    const auto size = [&] { return int64_t(random() % (1u << random() % 15)); };
    MoeProblem p = problem_of(MoeOperation(random() % 6), size(), 1 + random() % 12, size(), DType(random() % 3));
    p.experts = 1 + random() % kMostGroups;
    p.token.stride_row += random() % 3 * 4;
    p.row.alignment = max_of(uint32_t(1 << random() % 5), size_of(p.row.dtype));
    ASSERT_TRUE(validate(p).empty()) << validate(p).front();
    const auto launches = moe_launches(p);
    const MoeScratch scratch = moe_scratch(launches);
    for (const MoeLaunch& launch : launches) {
      const MoeParams& params = launch.params;
      const LaunchShape& shape = launch.shape;
      SCOPED_TRACE(enumerator_name(launch.kernel));
      ASSERT_LE(shape.dynamic_shared_bytes + 256, 48u * 1024);  // beside what is static
      ASSERT_TRUE(shape.programmatic);
      switch (launch.kernel) {
        case MoeKernel::count:
          ASSERT_GE(uint64_t(shape.grid.x) * params.chunk, params.slots);
          ASSERT_EQ(scratch.counts, shape.grid.x > 1 ? shape.grid.x * (p.experts + 1) : 0);
          ASSERT_LE(p.experts, kCountThreads);  // one thread adds up to one offset
          break;
        case MoeKernel::rank:
          ASSERT_GE(uint64_t(shape.grid.x) * params.chunk, params.slots);
          ASSERT_TRUE(shape.grid.x == 1 || (shape.grid.x - 1) * params.chunk < params.slots);  // none has nothing
          ASSERT_EQ(scratch.counts, shape.grid.x > 1 ? shape.grid.x * (p.experts + 1) : 0);
          ASSERT_LE(shape.grid.x, kMostChunks);
          ASSERT_LE(p.experts, shape.block.x);
          ASSERT_GE(params.parts * params.part, min_of(params.chunk, params.slots));
          ASSERT_LE(params.parts * 32, shape.block.x);
          ASSERT_EQ(params.part % 32, 0u);  // a warp's accesses are aligned
          ASSERT_EQ(shape.dynamic_shared_bytes, rank_shared_bytes(params.bins.divisor, params.parts));
          break;
        case MoeKernel::invert:
          ASSERT_GE(uint64_t(shape.grid.x) * kRowThreads, params.slots);
          break;
        case MoeKernel::quantize:
          FAIL() << "no rows are scaled";
        case MoeKernel::scatter:
        case MoeKernel::combine:
          ASSERT_EQ(shape.grid.x, ceil_div<int64_t>(p.tokens, kRowThreads / launch.config.lanes));
          ASSERT_GE(uint64_t(shape.grid.y) * launch.config.lanes * kScatterAccesses * launch.config.width,
                    params.row_bytes);
          break;
        case MoeKernel::combine_backward:
          ASSERT_GE(uint64_t(shape.grid.x) * kRowThreads / 32, params.slots);
          break;
      }
      if (launch.kernel < MoeKernel::invert) continue;
      ASSERT_EQ(scratch.positions, params.slots);
      if (launch.kernel == MoeKernel::invert) continue;
      ASSERT_EQ(params.row_bytes % launch.config.width, 0u);
      ASSERT_EQ(launch.config.width % size_of(p.row.dtype), 0u);
      if (p.columns == 0) continue;
      ASSERT_LE(launch.config.width, p.row.alignment);
      if (p.tokens > 1) {
        ASSERT_EQ(params.token_stride % launch.config.width, 0);
      }
    }
  }
}

TEST(MoeSource, TheConstantEqualsTheConfiguration) {
  if (!nvrtc_available()) GTEST_SKIP() << "NVRTC is not installed: pip install nvidia-cuda-nvrtc";
  const MoeConfig unusual{.wide_ids = true,
                          .type = DType::f16,
                          .has_weights = true,
                          .weights = DType::bf16,
                          .wide = DType::f32,
                          .width = 4,
                          .lanes = 32};
  const std::string text = translation_unit(MoeKernel::combine, unusual);
  const size_t begin = text.find("{"), end = text.find("};");
  const std::string source =
      "#include \"cleave/moe/moe_config.h\"\n"
      "constexpr cleave::MoeConfig unusual = " +
      text.substr(begin, end - begin) +
      "};\n"
      "static_assert(unusual == cleave::MoeConfig{true, cleave::DType::f16, true, "
      "cleave::DType::bf16, cleave::DType::f32, 4, 32});\n"
      "extern \"C\" __global__ void empty() {}\n";
  EXPECT_NO_THROW(compile_uncached(source, "sm_80")) << source;
}

/// Each kernel, with its widest access and its narrowest.
std::set<std::string> typical_sources() {
  std::set<std::string> sources;
  const auto add = [&](const MoeProblem& p) {
    for (const MoeLaunch& launch : moe_launches(p)) sources.insert(translation_unit(launch.kernel, launch.config));
  };
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    for (const int64_t columns : {2048, 2047}) {
      for (const auto operation : {MoeOperation::combine, MoeOperation::combine_backward}) {
        MoeProblem p = problem_of(operation, 4096, 8, columns, type);
        add(p);
        p.has_weights = true;
        p.weights_dtype = columns % 2 ? DType::f32 : type;
        add(p);
      }
    }
  }
  for (const DType wide : {DType::f16, DType::bf16, DType::f32}) {
    for (const DType type : {DType::i8, DType::e4m3, DType::e5m2}) {
      for (const int64_t columns : {2048, 2047}) {
        add(scaled_problem_of(MoeOperation::permute, 4096, 8, columns, type, wide));
      }
    }
  }
  MoeProblem permute = problem_of(MoeOperation::permute, 4096, 8, 2048);
  add(permute);
  permute.wide_ids = true;
  permute.columns = 2047;
  add(permute);
  permute.operation = MoeOperation::offsets;
  add(permute);
  permute.wide_ids = false;
  add(permute);
  return sources;
}

TEST(MoeKernels, CompileForHopperWithoutSpills) {
  expect_no_spills(typical_sources(), "sm_90a");
}

TEST(MoeKernels, CompileForAmpereWithoutSpills) {
  expect_no_spills(typical_sources(), "sm_80");
}

}  // namespace
}  // namespace cleave
