// Convolutions of one tap, which are products of matrices, and which of them run as such.
#include <gtest/gtest.h>

#include <algorithm>

#include "cleave/epilogue.h"
#include "conv_choice.h"
#include "plan/catalogue/candidates.h"
#include "problem/conv.h"

namespace cleave {
namespace {

/// Filters of one tap, on eight images of 14 x 28 pixels.
ConvLayout one_tap(Conv kind, int64_t channels = 256, int64_t filters = 64) {
  return {.kind = kind, .images = 8, .channels = channels, .filters = filters, .axes = {kNone, {14}, {28}}};
}

GemmProblem matrices(int64_t m, int64_t n, int64_t k, MatrixLayout a, MatrixLayout b) {
  const MatrixLayout d{DType::f16, n, 1};
  a.dtype = b.dtype = DType::f16;
  return {.m = m, .n = n, .k = k, .a = a, .b = b, .c = d, .d = d};
}

TEST(ConvProduct, HasPixelsAndFiltersAsMatrices) {
  constexpr int64_t kPixels = 8 * 14 * 28;
  const auto product = [](Conv kind) { return matrix_product(problem(one_tap(kind))); };
  EXPECT_EQ(product(Conv::fprop),
            matrices(kPixels, 64, 256, {.stride_row = 256}, {.stride_row = 1, .stride_col = 256}));
  EXPECT_EQ(product(Conv::dgrad), matrices(kPixels, 256, 64, {.stride_row = 64}, {.stride_row = 256}));
  EXPECT_EQ(product(Conv::wgrad), matrices(64, 256, kPixels, {.stride_row = 1, .stride_col = 64}, {.stride_row = 256}));
  EXPECT_FALSE(matrix_product(*product(Conv::fprop))) << "no convolution";
}

TEST(ConvProduct, KeepsWhatElseIsAskedFor) {
  GemmProblem p = problem(one_tap(Conv::fprop));
  p.has_c = true;
  p.bias = Bias::row;
  p.epilogue = epilogue_of(Activation::relu);
  p.a.stride_row = 512, p.b.stride_col = 264, p.d.stride_row = 128;
  p.a.alignment = 32;
  p.static_b = true;
  p.split_k_mode = SplitKMode::parallel;
  GemmProblem product = *matrix_product(p);
  EXPECT_EQ(product.conv, ConvLayout());
  product.conv = p.conv;
  for (auto matrix : {&GemmProblem::a, &GemmProblem::b, &GemmProblem::c, &GemmProblem::d})
    (product.*matrix).stride_batch = (p.*matrix).stride_batch;
  EXPECT_EQ(product, p);
}

TEST(ConvProduct, OthersAreNone) {
  for (const Conv kind : kConvs) {
    const ConvLayout conv = one_tap(kind);
    EXPECT_TRUE(matrix_product(problem(conv)));
    EXPECT_FALSE(matrix_product(problem(conv, 2))) << "groups";
    const ConvAxis others[] = {
        {.size = 28, .filter = 2}, {.size = 28, .stride = 2}, {.size = 28, .pad_begin = 1}, {.size = 28, .pad_end = 1}};
    for (const int axis : {0, 1, 2}) {
      for (const ConvAxis& other : others) {
        ConvLayout changed = conv;
        changed.axes[axis] = other;
        EXPECT_FALSE(matrix_product(problem(changed))) << axis;
      }
    }
  }
}

bool takes_products(const GemmProblem& p) {
  const std::vector<Choice> all = candidates(p, h100());
  const bool first = !all.empty() && all.front().spec.product;
  for (const Choice& choice : all) EXPECT_EQ(choice.spec.product, first) << to_string(choice.spec);
  return first;
}

// The same kernels, with the same times.
TEST(ConvProduct, HasTheCandidatesOfMatrices) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    const GemmProblem p = problem(one_tap(kind));
    const std::vector<Choice> own = candidates(p, h100()), expected = candidates(*matrix_product(p), h100());
    ASSERT_EQ(own.size(), expected.size());
    for (size_t i = 0; i < own.size(); ++i) {
      Spec spec = own[i].spec;
      EXPECT_TRUE(spec.product);
      spec.product = false;
      ASSERT_EQ(spec, expected[i].spec);
      ASSERT_EQ(own[i].config, expected[i].config);
      ASSERT_EQ(own[i].predicted_us, expected[i].predicted_us);
      ASSERT_EQ(own[i].workspace_bytes(), expected[i].workspace_bytes());
    }
    EXPECT_TRUE(std::ranges::any_of(own, [](const Choice& choice) { return choice.spec.transposed; }));
    EXPECT_EQ(cheapest(p, h100(), Kernels::all).choice->spec, own.front().spec);
    for (const Choice& choice : candidates(p, h100(), Kernels::any_images)) EXPECT_FALSE(choice.spec.product);
  }
}

TEST(ConvProduct, RunsAsOneAlongAnyAxesWithAnyEpilogue) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    ConvLayout line = one_tap(kind), deep = one_tap(kind);
    line.axes[1] = kNone;
    deep.axes[0] = {.size = 5};
    for (const ConvLayout& conv : {line, deep}) EXPECT_TRUE(takes_products(problem(conv)));
    GemmProblem p = problem(one_tap(kind));
    p.has_c = true;
    p.bias = Bias::row;
    p.epilogue = epilogue_of(Activation::relu);
    EXPECT_TRUE(takes_products(p));
    p.kernel = KernelFamily::portable;
    EXPECT_TRUE(takes_products(p));
    for (const SplitKMode mode :
         {SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster, SplitKMode::stream_k}) {
      p = problem(one_tap(kind));
      p.kernel = KernelFamily::sm90;
      p.split_k_mode = mode;
      EXPECT_TRUE(takes_products(p));
    }
  }
  EXPECT_TRUE(takes_products(problem(one_tap(Conv::fprop), 1, DType::f32)));
  GemmProblem quantised = problem(one_tap(Conv::fprop), 1, DType::e4m3);
  quantised.c.dtype = quantised.d.dtype = DType::bf16;
  quantised.scale_a = {.kind = Scaling::vector};
  quantised.scale_b = {.kind = Scaling::vector, .stride_row = 1};
  EXPECT_TRUE(takes_products(quantised));
}

TEST(ConvProduct, StaysAConvolutionWhereThatIsAheadOrAskedFor) {
  ConvLayout gradient = one_tap(Conv::wgrad);
  for (const int64_t images : {1, 8, 500}) {
    gradient.images = images;
    EXPECT_TRUE(takes_products(problem(gradient)));
  }
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    ConvLayout large = one_tap(kind);
    large.axes[1] = large.axes[2] = {.size = 64};
    large.images = 16;
    EXPECT_TRUE(takes_products(problem(large)));
    large.images = 17;
    EXPECT_EQ(takes_products(problem(large)), kind == Conv::dgrad);
    large.filters = 320;
    EXPECT_TRUE(takes_products(problem(large))) << "many filters";
    EXPECT_FALSE(takes_products(problem(one_tap(kind, 12, 64)))) << "TMA cannot fetch 12 channels";
    GemmProblem p = problem(one_tap(kind));
    p.conv.division = Division::plain;
    EXPECT_FALSE(takes_products(p));
    p = problem(one_tap(kind));
    p.a.stride_row += 4;
    EXPECT_FALSE(takes_products(p)) << "rows that TMA cannot fetch";
  }
}

TEST(ConvProduct, HasAName) {
  const GemmProblem wgrad = problem(one_tap(Conv::wgrad));
  const auto choice = choose(wgrad, "sm90 128x128 transposed product");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.conv.kind, Conv::none);
  EXPECT_EQ(to_string(choice->spec), "sm90 128x128 transposed product");
  EXPECT_FALSE(serves(problem(layer(Conv::fprop)), "sm90 128x128 product")) << "3 x 3 taps";
  EXPECT_FALSE(serves(*matrix_product(wgrad), "sm90 128x128 product")) << "a product already";
  EXPECT_FALSE(serves(wgrad, "direct 8x32 product"));
  EXPECT_FALSE(serves(wgrad, "sm90 64x64 gather product"));
  EXPECT_TRUE(serves(problem(one_tap(Conv::fprop)), "sm90 128x128")) << "as what was measured before has it";
}

}  // namespace
}  // namespace cleave
