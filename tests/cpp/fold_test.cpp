// Sums over ranks: their order, what is done to them once, and the kernel.
#include "cleave/fold.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "cleave/core/element.h"
#include "cleave/device.h"
#include "cleave/epilogue.h"
#include "cleave/quantize.h"
#include "epilogue/evaluate.h"
#include "expect_no_spills.h"
#include "jit/nvrtc.h"
#include "peers/fold_launch.h"
#include "peers/fold_problem.h"
#include "peers/gather_launch.h"
#include "peers/push_launch.h"

namespace cleave {
namespace {

FoldProblem problem_of(int64_t ranks, int64_t rows, int64_t columns, int device = kCpu) {
  return {.ranks = ranks,
          .rows = rows,
          .most_rows = rows,
          .columns = columns,
          .partial = {.dtype = DType::f32, .stride_row = columns},
          .d = {.dtype = DType::f32, .stride_row = columns},
          .device = device};
}

std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 random{seed};
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

TEST(Fold, AddsInTheOrderOfTheRanks) {
  constexpr int64_t kRanks = 5, kRows = 7, kColumns = 13;
  FoldProblem problem = problem_of(kRanks, kRows, kColumns);
  problem.has_c = problem.has_bias = true;
  problem.c = {.dtype = DType::f32, .stride_row = kColumns};
  problem.function = epilogue_of(Activation::relu).function;
  FoldArguments arguments;
  std::vector<std::vector<float>> partials;
  for (int64_t r = 0; r < kRanks; ++r) {
    partials.push_back(random_floats(kRows * kColumns, uint32_t(r)));
    arguments.partials[r] = partials.back().data();
  }
  const auto c = random_floats(kRows * kColumns, 90), bias = random_floats(kColumns, 91);
  std::vector<float> d(kRows * kColumns, 1e30f);
  arguments.c = c.data(), arguments.bias = bias.data(), arguments.d = d.data();
  plan(problem)->run(arguments, nullptr);
  for (size_t i = 0; i < d.size(); ++i) {
    float sum = partials[0][i];
    for (size_t r = 1; r < kRanks; ++r) sum += partials[r][i];
    sum = sum + c[i] + bias[i % kColumns];
    ASSERT_EQ(d[i], sum < 0 ? 0.0f : sum);
  }
}

TEST(Fold, IntegersAreScaledWhenTheyAreAddedUp) {
  constexpr int64_t kRows = 3, kColumns = 5;
  FoldProblem problem = problem_of(2, kRows, kColumns);
  problem.partial.dtype = DType::i32;
  problem.scale_a = {.kind = Scaling::vector, .stride_row = 1};
  problem.scale_b = {.kind = Scaling::vector, .stride_row = 0};
  std::vector<int32_t> first(kRows * kColumns), second(kRows * kColumns);
  for (size_t i = 0; i < first.size(); ++i) {
    first[i] = 1 << 30;  // which no float32 adds exactly
    second[i] = int32_t(i) * 7 - (1 << 30);
  }
  const float scale_a[] = {0.5f, 3.0f, 1.0f}, scale_b = 0.125f;
  std::vector<float> d(kRows * kColumns);
  plan(problem)->run(
      {.partials = {first.data(), second.data()}, .scale_a = scale_a, .scale_b = &scale_b, .d = d.data()}, nullptr);
  for (size_t i = 0; i < d.size(); ++i) ASSERT_EQ(d[i], float(i * 7) * (scale_a[i / kColumns] * scale_b));
  problem.partial.dtype = DType::f32;
  EXPECT_EQ(validate(problem)[0], "partial is float32, which is scaled already; scale_a and scale_b are of int32");
}

/// What comes behind a fold of float32 in two steps, by functions and quantisers of their own.
struct TwoSteps {
  std::vector<uint8_t> q;
  std::vector<float> scales;
};

TwoSteps in_two_steps(std::vector<float> sums, int64_t rows, int64_t columns, const EpilogueFunction* function,
                      DType q_type, bool ue8m0) {
  const Gates gates = function == nullptr ? Gates::none : function->gates();
  const int64_t of_d = gates == Gates::none ? columns : columns / 2, lines = ceil_div(of_d, int64_t(kScaleBlock));
  std::vector<float> made(size_t(rows * of_d));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = 0; n < of_d; ++n) {
      const float* const of_row = sums.data() + row * columns;
      float gate = of_row[n], up = 0.0f;
      if (gates == Gates::halves) up = of_row[of_d + n];
      if (gates == Gates::interleaved) gate = of_row[2 * n], up = of_row[2 * n + 1];
      float line[kEvaluatedLanes] = {gate}, ups[kEvaluatedLanes] = {up};
      float* const outputs[] = {line};
      if (function != nullptr) {
        std::vector<float> scratch = function->evaluator().scratch();
        function->evaluator()(1, line, ups, nullptr, outputs, scratch);
      }
      made[size_t(row * of_d + n)] = line[0];
    }
  }
  TwoSteps result{std::vector<uint8_t>(made.size()), std::vector<float>(size_t(rows * lines))};
  const QuantizeProblem quantize{.rows = rows,
                                 .cols = of_d,
                                 .granularity = Granularity::block_1x128,
                                 .x = {.dtype = DType::f32, .stride_row = of_d, .alignment = 4},
                                 .q = {.dtype = q_type, .stride_row = of_d, .alignment = 1},
                                 .scale = {.dtype = DType::f32, .stride_row = lines},
                                 .ue8m0_scale = ue8m0,
                                 .device = kCpu};
  plan(quantize)->run({.x = made.data(), .q = result.q.data(), .scale = result.scales.data()}, nullptr);
  return result;
}

TEST(Fold, GatesAndScalesHaveTheBitsOfStepsBehindIt) {
  constexpr int64_t kRanks = 3, kRows = 5;
  for (const int64_t columns : {600, 256, 2}) {
    std::vector<std::vector<float>> partials;
    FoldArguments arguments;
    for (int64_t r = 0; r < kRanks; ++r) {
      partials.push_back(random_floats(size_t(kRows * columns), uint32_t(r)));
      arguments.partials[r] = partials.back().data();
    }
    const auto bias = random_floats(size_t(columns), 91);
    arguments.bias = bias.data();
    FoldProblem problem = problem_of(kRanks, kRows, columns);
    problem.has_bias = true;
    std::vector<float> sums(size_t(kRows * columns));
    arguments.d = sums.data();
    plan(problem)->run(arguments, nullptr);
    for (const Activation activation :
         {Activation::none, Activation::gelu_erf, Activation::swiglu, Activation::swiglu_interleaved}) {
      for (const DType type : {DType::e4m3, DType::i8}) {
        problem.function = epilogue_of(activation).function;
        const int64_t of_d = columns_of_d(problem), lines = ceil_div(of_d, int64_t(kScaleBlock));
        problem.d = {.dtype = type, .stride_row = of_d, .alignment = 1};
        problem.scale_out = {.kind = Scaling::block, .stride_row = 1, .stride_k = kRows};  // "mn"
        problem.ue8m0_scale_out = type == DType::e4m3;
        ASSERT_TRUE(validate(problem).empty()) << validate(problem)[0];
        std::vector<uint8_t> d(size_t(kRows * of_d), 0x55);
        std::vector<float> scales(size_t(kRows * lines), -1.0f);
        arguments.d = d.data(), arguments.scale_out = scales.data();
        plan(problem)->run(arguments, nullptr);
        const TwoSteps expected = in_two_steps(sums, kRows, columns, problem.function, type, problem.ue8m0_scale_out);
        EXPECT_EQ(d, expected.q);
        for (int64_t row = 0; row < kRows; ++row)
          for (int64_t line = 0; line < lines; ++line)
            ASSERT_EQ(scales[size_t(line * kRows + row)], expected.scales[size_t(row * lines + line)]);
      }
    }
  }
}

TEST(Fold, RanksOfAGroupWaitForEachOther) {
  constexpr int kRanks = 4;
  constexpr int64_t kColumns = 24;
  const size_t bytes = Group::reserved(kRanks) + 2 * kColumns * sizeof(float);
  std::vector<std::vector<uint64_t>> memory(kRanks, std::vector<uint64_t>(bytes / sizeof(uint64_t)));
  std::vector<void*> blocks;
  for (auto& block : memory) blocks.push_back(block.data());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = Group::from_pointers(rank, kCpu, blocks, bytes);
      for (int call = 0; call < 200; ++call) {
        const auto part = [&](int r) { return static_cast<float*>(group->staging(r)) + call % 2 * kColumns; };
        for (int64_t n = 0; n < kColumns; ++n) part(rank)[n] = float(call * 1000 + rank * 100 + n);
        std::vector<float> d(kColumns);
        FoldArguments arguments{.d = d.data(), .group = group.get(), .call = "a sum"};
        for (int r = 0; r < kRanks; ++r) arguments.partials[r] = part(r);
        plan(problem_of(kRanks, 1, kColumns))->run(arguments, nullptr);
        for (int64_t n = 0; n < kColumns; ++n) ASSERT_EQ(d[size_t(n)], float(4 * call * 1000 + 600 + 4 * n));
      }
    });
  }
}

TEST(Fold, BrokenRulesAreNamed) {
  FoldProblem p = problem_of(17, 4, 8);
  p.function = epilogue_of(Activation::swiglu).function;
  p.columns = 9;
  p.d.dtype = DType::i8;
  p.has_c = true;
  p.c = p.partial;
  auto said = validate(p);
  ASSERT_EQ(said.size(), 4u);
  EXPECT_EQ(said[0], "ranks is 17; it must be from 1 to 16");
  EXPECT_EQ(said[1], "columns is 9; gates join two of them, so they must be even");
  EXPECT_EQ(said[2], "c is given, but a function of gates, to which nothing is added; leave c out");
  EXPECT_EQ(said[3], "d is int8 and scale_d is missing; 8 bits are scaled, and nothing else is");
  p = problem_of(2, 4, 8);
  p.d.dtype = DType::i8;
  p.has_scale_d = true;
  p.scale_out = {.kind = Scaling::block, .stride_row = 0, .stride_k = 1};
  said = validate(p);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[1], "scale_d is given beside scale_out, whose scales are found; leave one of them out");
  p.has_scale_d = false;
  p.scale_out.stride_row = 1;
  EXPECT_TRUE(validate(p).empty());
  p.d.dtype = DType::f32;
  EXPECT_EQ(validate(p)[0], "d is float32 and scale_d is found; 8 bits are scaled, and nothing else is");
  p.scale_out.kind = Scaling::vector;
  EXPECT_EQ(validate(p)[0], "scale_out is not of blocks of 1 row by 128 columns; no other scales are found");
}

/// Pieces of lines that exist in part are more than the sum's elements would be.
TEST(Fold, RowsWithScalesAreAsManyAsThreadsCount) {
  FoldProblem p = problem_of(2, (int64_t(1) << 26) - 1, 8);
  p.d = {.dtype = DType::e4m3, .stride_row = 8};
  p.scale_out = {.kind = Scaling::block, .stride_row = 1, .stride_k = 1};
  EXPECT_TRUE(validate(p).empty());
  EXPECT_EQ(fold_launches(p)[0].params.pieces, p.rows * 32);
  ++p.rows;
  ASSERT_EQ(validate(p).size(), 1u);
  EXPECT_EQ(validate(p)[0],
            "rows is 67108864; with scales of blocks, rows of 8 columns may be up to 67108863, fold some at a time");
}

TEST(FoldLaunches, EveryRankHasTheSameCtas) {
  for (const int64_t most : {0, 1, 33, 5000}) {
    std::set<uint32_t> ctas;
    for (const int64_t rows : {int64_t(0), most / 2, most}) {
      FoldProblem p = problem_of(2, rows, 512, kPlanOnlyH100);
      p.most_rows = most;
      const auto launches = fold_launches(p);
      ASSERT_EQ(launches.size(), 1u);
      ctas.insert(launches[0].shape.grid.x);
      EXPECT_EQ(launches[0].params.pieces, rows * 128);
    }
    EXPECT_EQ(ctas.size(), 1u);
    EXPECT_LE(*ctas.begin(), kMostReadingCtas);
  }
}

TEST(FoldLaunches, CtasDoNotDependOnHowARanksResultIsAligned) {
  FoldProblem p = problem_of(2, 33, 512, kPlanOnlyH100);
  const uint32_t ctas = fold_launches(p)[0].shape.grid.x;
  p.d.alignment = 4;
  EXPECT_FALSE(config_of(p).vectors);
  EXPECT_EQ(fold_launches(p)[0].shape.grid.x, ctas);
  EXPECT_GT(ctas, 1u);
  EXPECT_LT(ctas, kMostCtas);
}

TEST(FoldLaunches, VectorsAreAlignedInBoth) {
  FoldProblem p = problem_of(2, 8, 64, kPlanOnlyH100);
  EXPECT_TRUE(config_of(p).vectors);
  p.partial.dtype = DType::bf16;
  p.d.alignment = 8;
  EXPECT_FALSE(config_of(p).vectors);
  p.d.dtype = DType::i8;
  EXPECT_TRUE(config_of(p).vectors);
  p.columns = 60;
  EXPECT_FALSE(config_of(p).vectors);
}

TEST(FoldLaunches, LinesOfColumnsAreOfNeighbouringThreads) {
  FoldProblem p = problem_of(2, 3, 400, kPlanOnlyH100);
  p.d = {.dtype = DType::e4m3, .stride_row = 200, .alignment = 16};
  p.function = epilogue_of(Activation::swiglu).function;
  p.scale_out = {.kind = Scaling::block, .stride_row = 2, .stride_k = 1};
  for (const DType type : {DType::f32, DType::bf16}) {
    p.partial.dtype = type;
    const FoldConfig config = config_of(p);
    EXPECT_TRUE(config.vectors);
    EXPECT_EQ(32 % (kScaleBlock / fold_elements(config)), 0u);
    const FoldParams params = fold_launches(p)[0].params;
    EXPECT_EQ(params.row.divisor, 2 * kScaleBlock / fold_elements(config));
    EXPECT_EQ(params.pieces, 3 * params.row.divisor);
    EXPECT_EQ(params.columns, 200u);
  }
  p.columns = 396, p.d.stride_row = 198;
  EXPECT_FALSE(config_of(p).vectors);  // 8 neighbours nevertheless, as far as they exist
  EXPECT_EQ(fold_launches(p)[0].params.row.divisor, 2 * kScaleBlock / 8);
}

TEST(FoldLaunches, GatesThatArePushedFitTheirPlaces) {
  for (const int64_t ranks : {2, 8}) {
    for (const bool scales : {false, true}) {
      FoldProblem p = problem_of(ranks, 1, 8192, kPlanOnlyH100);
      p.partial.dtype = DType::bf16;
      p.d = {.dtype = scales ? DType::e4m3 : DType::bf16, .stride_row = 4096};
      p.function = epilogue_of(Activation::swiglu).function;
      if (scales) p.scale_out = {.kind = Scaling::block, .stride_row = 32, .stride_k = 1};
      for (p.rows = p.most_rows = 1; can_push(p); p.rows = p.most_rows = p.rows + 1) {
        p.pushed = true;
        const FoldLaunch launch = fold_launches(p)[0];
        EXPECT_LE(launch.params.pieces, launch.shape.grid.x * launch.shape.block.x * fold_pushes(launch.config));
        EXPECT_LE(launch.shape.grid.x, kMostCtas);
        EXPECT_EQ(launch.shape.block.x * fold_pushes(launch.config) * fold_vectors(launch.config),
                  kFoldThreads * pushed_pieces(uint32_t(ranks)));
        p.pushed = false;
      }
      EXPECT_EQ(p.rows, ranks == 2 ? 129 : 65);
      EXPECT_FALSE(can_strip(p));
    }
  }
}

TEST(FoldLaunches, WhatIsPushedIsSmallAndInWholePieces) {
  FoldProblem p = problem_of(2, 64, 8192, kPlanOnlyH100);
  p.partial.dtype = DType::bf16;
  for (const int64_t rows : {1, 64, 128}) {
    p.rows = p.most_rows = rows;
    ASSERT_TRUE(can_push(p));
    p.pushed = true;
    const FoldLaunch launch = fold_launches(p)[0];
    EXPECT_LE(launch.params.pieces, launch.shape.grid.x * kFoldThreads * pushed_pieces(2));
    EXPECT_LE(launch.shape.grid.x, kMostCtas);
    p.pushed = false;
    EXPECT_LE(fold_launches(p)[0].shape.grid.x, kMostReadingCtas);
  }
  p.rows = p.most_rows = 129;
  EXPECT_FALSE(can_push(p));
  p.pushed = true;
  EXPECT_EQ(validate(p)[0],
            "pushed is true, but 2 partial results of 129 x 8192 bfloat16 are too many or lie in unaligned rows; leave "
            "it");
  p.rows = p.most_rows = 16;
  EXPECT_TRUE(validate(p).empty());
  p.ranks = 9;
  EXPECT_FALSE(can_push(p));
  p.ranks = 8;
  p.d.alignment = 4;
  EXPECT_FALSE(can_push(p));
  p.d.alignment = 16;
  p.columns = 8190;
  EXPECT_FALSE(can_push(p));
}

TEST(FoldLaunches, PushedPiecesFitTheirPlaces) {
  for (const uint32_t ranks : {1, 2, 4, 5, 8, 16}) {
    EXPECT_EQ(pushed_offset(ranks, 0, 0, 0), kGroupHeaderBytes);
    const uint64_t bytes_of_cta = pushed_pieces(ranks) * kFoldThreads * 16;
    EXPECT_EQ(pushed_offset(ranks, 7, ranks - 1, kMostCtas - 1) + bytes_of_cta, reserved_bytes(ranks));
    EXPECT_EQ(pushed_offset(ranks, 4, 0, 1), pushed_offset(ranks, 6, 0, 1));
  }
}

TEST(GatherLaunches, CtasFollowFromBytesAlone) {
  alignas(16) char memory[32];
  for (const size_t bytes : {0, 16, 4096, 65536}) {
    const LaunchShape shape = gather_shape(3, bytes);
    EXPECT_LE(shape.grid.x, kMostReadingCtas);
    for (char* const out : {memory, memory + 4, memory + 1}) {
      const GatherConfig config = gather_config(bytes, out);
      EXPECT_EQ(config.threads, shape.block.x);
      if (bytes == 0) continue;
      EXPECT_EQ(config.bytes, out == memory ? 16u : out == memory + 4 ? 4u : 1u);
      EXPECT_EQ(gather_params(config, 3, 0, bytes, out).pieces, 3 * bytes / config.bytes);
    }
  }
}

/// What a rank pushes: `bytes` of shares of so many, and perhaps 4 for each 64 of them.
std::vector<Group::Rows> pushed_rows(const void* own, size_t bytes, size_t share, bool scales) {
  std::vector<Group::Rows> parts = {{.own = own, .bytes = bytes, .share = share}};
  if (scales) parts.push_back({.own = own, .bytes = bytes / 16, .share = share / 16});
  return parts;
}

TEST(PushLaunches, CtasAndTheirChunksFollowFromSharesAlone) {
  alignas(16) static char memory[32];
  for (const size_t share : {0, 64, 4096, 4160, 1 << 20, 1 << 24}) {
    for (const bool scales : {false, true}) {
      const auto whole = pushed_rows(memory, share, share, scales),
                 few = pushed_rows(memory + 1, share / 64, share, scales);
      const LaunchShape shape = push_shape(whole);
      EXPECT_EQ(shape.grid.x, push_shape(few).grid.x);
      EXPECT_LE(shape.grid.x, kMostReadingCtas);
      EXPECT_EQ(push_config(whole).bytes, 16u);
      EXPECT_EQ(push_config(few).bytes, 1u);
      const PushRowsParams params = push_params(whole, 3), of_few = push_params(few, 3);
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_GE(params.parts[i].chunk * shape.grid.x, whole[i].share);
        EXPECT_EQ(params.parts[i].chunk % 16, 0u);
        EXPECT_EQ(params.parts[i].chunk, of_few.parts[i].chunk);
      }
    }
  }
}

TEST(PushLaunches, PiecesAreAlignedWhereTheyComeFromAndWhereTheyAreKept) {
  alignas(16) static char memory[64];
  const auto bytes_of = [&](size_t own, size_t out) {
    const Group::Rows part = {.own = memory + own, .bytes = 32, .share = 32, .out = memory + out};
    return push_config({&part, 1}).bytes;
  };
  EXPECT_EQ(bytes_of(0, 16), 16u);
  EXPECT_EQ(bytes_of(4, 16), 4u);
  EXPECT_EQ(bytes_of(0, 20), 4u);
  EXPECT_EQ(bytes_of(0, 17), 1u);
}

TEST(PushLaunches, EachConfigurationHasItsPlace) {
  std::set<int> numbers;
  for (const uint32_t bytes : {16, 4, 1})
    for (const uint32_t second : {0, 16, 4, 1})
      for (const bool keeps : {false, true}) numbers.insert(number_of({bytes, second, keeps}));
  EXPECT_EQ(numbers.size(), size_t(kPushingKernels));
  EXPECT_EQ(*numbers.begin(), 0);
  EXPECT_EQ(*numbers.rbegin(), kPushingKernels - 1);
}

TEST(PeerKernels, CompileWithoutSpills) {
  std::set<std::string> sources, of_few_threads;
  for (const uint32_t bytes : {16, 4, 1})
    for (const uint32_t second : {0u, bytes})
      for (const bool keeps : {false, true}) sources.insert(translation_unit(PushRowsConfig{bytes, second, keeps}));
  for (const uint32_t ranks : {1, 2, 3, 8, 16}) {
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      FoldConfig config{.ranks = ranks, .partial = type, .d = type};
      sources.insert(translation_unit(FoldKernel::fold, config));
      config.has_c = config.has_bias = true;
      config.has_function = true;
      config.function = epilogue_of(Activation::gelu_erf).function;
      config.vectors = type != DType::f16;
      sources.insert(translation_unit(FoldKernel::fold, config));
      config.vectors = config.pushed = ranks <= kMostPushingRanks;
      sources.insert(translation_unit(FoldKernel::fold, config));
    }
  }
  const auto add = [&](const FoldConfig& config) {
    (fold_threads(config) == kFoldThreads ? sources : of_few_threads)
        .insert(translation_unit(FoldKernel::fold, config));
  };
  for (const uint32_t ranks : {2, 8, 16}) {
    for (const DType type : {DType::bf16, DType::f32, DType::i32}) {
      if (type == (ranks == 8 ? DType::i32 : DType::f32) && ranks > 2) continue;
      for (const Activation activation : {Activation::swiglu, Activation::swiglu_interleaved}) {
        const EpilogueProblem epilogue = epilogue_of(activation);
        FoldConfig config{.ranks = ranks, .partial = type, .d = DType::bf16, .has_bias = true};
        config.has_function = true;
        config.function = epilogue.function;
        config.gates = epilogue.gates;
        if (activation == Activation::swiglu) config.d = DType::e4m3, config.finds_scales = true;
        add(config);
        config.pushed = ranks <= kMostPushingRanks && type != DType::i32;
        if (config.pushed) add(config);
        config.pushed = config.vectors = false;
        if (ranks == 2 && config.finds_scales) add(config);
      }
    }
    add({.ranks = ranks, .d = DType::i8, .finds_scales = true, .ue8m0 = ranks == 2});
  }
  for (const size_t bytes : {0, 16, 4, 1}) sources.insert(translation_unit(gather_config(bytes, nullptr)));
  for (const uint32_t ranks : {2, 8, 16})
    sources.insert(translation_unit(FoldKernel::fold, FoldConfig{.ranks = ranks, .partial = DType::i32}));
  FoldConfig scaled{.d = DType::e4m3, .has_scale_d = true};
  sources.insert(translation_unit(FoldKernel::fold, scaled));
  constexpr uint32_t kRegisters = 65536 / (2 * kFoldThreads);
  expect_no_spills(sources, "sm_90a", kRegisters);
  expect_no_spills(sources, "sm_80", kRegisters);
  expect_no_spills(of_few_threads, "sm_90a", 255);
  expect_no_spills(of_few_threads, "sm_80", 255);
}

}  // namespace
}  // namespace cleave
