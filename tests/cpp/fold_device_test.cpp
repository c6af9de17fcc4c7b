// The kernel that adds ranks' partial results up, without the ranks: a block's threads are the host's.

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "host_threads.h"
#include "random.h"

// What the fold's headers ask for beside that.
#define CLEAVE_NO_UNROLL
namespace {

uint2 make_uint2(uint32_t x, uint32_t y) {
  return {x, y};
}
uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}
float2 make_float2(float x, float y) {
  return {x, y};
}
float __uint_as_float(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline uint32_t atomicExch(uint32_t* to, uint32_t value) {
  return std::exchange(*to, value);
}
inline void __threadfence_system() {}
inline bool __syncthreads_and(bool value) {
  return value;  // nobody meets here
}

}  // namespace

#include "cleave/core/element.h"

namespace cleave {
namespace {

uint32_t pack_bytes(DType type, float low, float high) {
  return element_bits(type, low) | element_bits(type, high) << 8;
}
uint32_t pack_pair(DType type, float low, float high) {
  return element_bits(type, low) | element_bits(type, high) << 16;
}

}  // namespace
}  // namespace cleave

#include "cleave/peers/fold.h"
#include "peers/fold_launch.h"
#include "peers/fold_problem.h"

namespace cleave {

/// swiglu's; the kernel's is written from the same function.
template <auto C>
  requires(C.has_function)
struct FunctionBody<C> {
  static float run(float gate, float up, const auto&, float (&out)[1]) {
    return out[0] = apply(Elementwise::multiply, apply(Elementwise::silu, gate), up);
  }
};

namespace {

std::vector<std::byte> drawn(Random& random, DType type, size_t count) {
  std::vector<std::byte> data(count * size_of(type));
  for (size_t i = 0; i < count; ++i) {
    const auto number = int32_t(random.number(-999, 999));
    store_element(type, data.data(), int64_t(i), type == DType::i32 ? float(number) : float(number) / 77);
  }
  return data;
}

/// That the kernel gives the CPU backend's bits, in rows as long as D's and a few elements more.
template <FoldConfig C>
void check_fold(int64_t rows, int64_t of_d, int64_t room) {
  SCOPED_TRACE(of_d);
  Random random{uint32_t(of_d)};
  const int64_t columns = of_d * fold_vectors(C), lines = ceil_div(of_d, int64_t(kScaleBlock)), stride = columns + room;
  FoldProblem p{.ranks = C.ranks,
                .rows = rows,
                .most_rows = rows,
                .columns = columns,
                .partial = {.dtype = C.partial, .stride_row = stride},
                .has_bias = C.has_bias,
                .d = {.dtype = C.d, .stride_row = of_d + room},
                .device = kCpu};
  if (C.finds_scales) p.scale_out = {.kind = Scaling::block, .stride_row = lines, .stride_k = 1};
  p.ue8m0_scale_out = C.ue8m0;
  if (C.gates != Gates::none)
    p.function = epilogue_of(C.gates == Gates::halves ? Activation::swiglu : Activation::swiglu_interleaved).function;
  FoldConfig planned = config_of(p);
  planned.function = nullptr;
  ASSERT_EQ(planned, C);

  FoldArguments arguments;
  std::vector<std::vector<std::byte>> partials;
  for (uint32_t rank = 0; rank < C.ranks; ++rank) {
    partials.push_back(drawn(random, C.partial, size_t(rows * stride)));
    arguments.partials[rank] = partials.back().data();
  }
  const auto bias = drawn(random, C.bias, size_t(columns));
  arguments.bias = bias.data();
  const auto run = [&](const auto& by, std::vector<std::byte>& d, std::vector<float>& scales) {
    d.assign(size_t(rows * (of_d + room)) * size_of(C.d), std::byte{0x55});
    scales.assign(size_t(rows * lines), -1.0f);
    arguments.d = d.data();
    arguments.scale_out = scales.data();
    by();
  };
  std::vector<std::byte> d, expected_d;
  std::vector<float> scales, expected_scales;
  run([&] { make_cpu_plan(p)->run(arguments, nullptr); }, expected_d, expected_scales);
  run(
      [&] {
        FoldParams params = fold_launches(p)[0].params;
        for (uint32_t rank = 0; rank < C.ranks; ++rank) params.partials[rank] = arguments.partials[rank];
        params.bias = arguments.bias;
        params.d = arguments.d;
        params.scale_out = arguments.scale_out;
        constexpr uint32_t kThreads = 64;
        run_block(kThreads, [&] {
          for (uint32_t first = 0; first < params.pieces; first += kThreads) {
            FoldPiece<C> piece;
            piece.place(params, first + threadIdx.x);
            piece.load(params);
            piece.finish(params, 1.0f);
          }
        });
      },
      d, scales);
  EXPECT_EQ(d, expected_d);
  EXPECT_EQ(scales, expected_scales);
}

constexpr FoldConfig config_with(DType partial, DType d, bool finds_scales, Gates gates, bool vectors) {
  FoldConfig config{.ranks = 3, .partial = partial, .d = d, .has_bias = true};
  config.finds_scales = finds_scales, config.ue8m0 = d == DType::i8;
  config.gates = gates, config.has_function = gates != Gates::none;
  config.vectors = vectors;
  return config;
}

/// With gates, and with scales in lines that exist in part.
template <DType Partial, DType D, bool FindsScales, Gates G>
void check_folds() {
  for (const int64_t of_d : {128, 8, 264}) check_fold<config_with(Partial, D, FindsScales, G, true)>(3, of_d, 16);
  for (const int64_t of_d : {1, 131, 390}) check_fold<config_with(Partial, D, FindsScales, G, false)>(3, of_d, 1);
}

TEST(FoldDevice, GatesAreJoinedAsOnTheCpu) {
  check_folds<DType::bf16, DType::f32, false, Gates::none>();
  check_folds<DType::bf16, DType::f32, false, Gates::halves>();
  check_folds<DType::f32, DType::bf16, false, Gates::interleaved>();
  check_folds<DType::f16, DType::bf16, false, Gates::interleaved>();
}

TEST(FoldDevice, ScalesAreFoundAsOnTheCpu) {
  check_folds<DType::bf16, DType::e4m3, true, Gates::none>();
  check_folds<DType::f32, DType::i8, true, Gates::none>();
  check_folds<DType::bf16, DType::i8, true, Gates::halves>();
  check_folds<DType::i32, DType::e4m3, true, Gates::halves>();
  check_folds<DType::f16, DType::e5m2, true, Gates::interleaved>();
  check_folds<DType::f32, DType::e4m3, true, Gates::interleaved>();
}

}  // namespace
}  // namespace cleave
