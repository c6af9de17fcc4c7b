// Epilogue functions: their one object and text, their place in a kernel's source, and plans of the CPU that run them.
#include "cleave/epilogue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cleave/core/elementwise.h"
#include "cleave/device.h"
#include "cleave/gemm.h"
#include "gemm_problems.h"
#include "jit/compiler.h"
#include "jit/nvrtc.h"
#include "jit/source.h"
#include "launch/product.h"

namespace cleave {
namespace {

constexpr const char* kText = "bias row\nweight column\n%0 = add acc bias\nd = multiply %0 weight\npre:float32 = %0\n";

/// Its inputs packed, of float32.
GemmProblem layer(int64_t m, int64_t n, int64_t k, int device) {
  GemmProblem p{.m = m, .n = n, .k = k, .device = device};
  p.a = row_major(k);
  p.b = column_major(k);
  p.c = p.d = row_major(n);
  p.epilogue.function = &epilogue_function(kText);
  p.epilogue.inputs[0] = {.shape = InputShape::row, .alignment = 4, .stride = 1};
  p.epilogue.inputs[1] = {.shape = InputShape::column, .alignment = 4, .stride = 1};
  p.epilogue.outputs[0] = {.alignment = 16, .stride = n};
  return p;
}

TEST(EpilogueFunction, IsOneObject) {
  const EpilogueFunction& first = epilogue_function(kText);
  EXPECT_EQ(&epilogue_function(first.text()), &first);
  // Values once, and none that no output needs.
  EXPECT_EQ(&epilogue_function("bias row\nweight column\n%unused = exp acc\n%a = add acc bias\n%b = add acc bias\n"
                               "d = multiply %b weight\npre:float32 = %a"),
            &first);
  EXPECT_NE(&epilogue_function("bias row\nd = acc"), &first);
  EXPECT_EQ(first.outputs()[1].dtype, DType::f32);
}

TEST(EpilogueFunction, KeepsItsConstants) {
  for (const float value : {0.1f, 1e-40f, -INFINITY, 3.4e38f, -0.0f}) {
    const EpilogueFunction& f = epilogue_function(fmt::format("d = acc\npre = {}", value));
    const EpilogueNode& node = f.nodes()[f.outputs()[1].node];
    EXPECT_EQ(float_bits(node.constant), float_bits(value));
    EXPECT_EQ(&epilogue_function(f.text()), &f);
  }
}

TEST(EpilogueFunction, RunsOnTheCpu) {
  constexpr int64_t m = 5, n = 7, k = 3;
  GemmProblem p = layer(m, n, k, kCpu);
  p.a.dtype = p.b.dtype = p.c.dtype = p.d.dtype = DType::f32;
  std::vector<float> a(m * k, 1.0f), b(k * n, 2.0f), d(m * n), bias(n), weight(m), pre(m * n);
  for (int64_t i = 0; i < n; ++i) bias[i] = float(i);
  for (int64_t i = 0; i < m; ++i) weight[i] = float(10 * i);
  GemmArguments x{.a = a.data(), .b = b.data(), .d = d.data()};
  x.epilogue_inputs[0].data = bias.data();
  x.epilogue_inputs[1].data = weight.data();
  x.epilogue_outputs[0] = pre.data();
  const auto made = plan(p);
  made->run(x, nullptr);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_EQ(pre[i * n + j], 6.0f + float(j));
      EXPECT_EQ(d[i * n + j], (6.0f + float(j)) * 10.0f * float(i));
    }
  }
  x.epilogue_inputs[1].data = nullptr;
  EXPECT_THROW(made->run(x, nullptr), Error);
}

TEST(EpilogueFunction, IsInTheKernelsSource) {
  const GemmProblem p = layer(256, 256, 512, kPlanOnlyH100);
  const std::string source = plan(p)->kernel_source();
  EXPECT_NE(source.find("struct cleave::FunctionBody<config>"), source.npos) << source;
  EXPECT_NE(source.find("const float v2 = apply(add, acc, in[0]);"), source.npos) << source;
  EXPECT_NE(source.find("cleave::packed({"), source.npos) << source;
  GemmProblem renamed = p;
  renamed.epilogue.function =
      &epilogue_function("x row\ny column\n%0 = add acc x\nd = multiply %0 y\nz:float32 = %0\n");
  EXPECT_EQ(plan(renamed)->kernel_source(), source);
}

/// D read the other way: rows are columns.
TEST(EpilogueFunction, IsTransposedWithTheProduct) {
  const GemmProblem t = transposed(layer(64, 128, 32, kPlanOnlyH100));
  EXPECT_EQ(t.epilogue.inputs[0].shape, InputShape::column);
  EXPECT_EQ(t.epilogue.inputs[1].shape, InputShape::row);
  EXPECT_EQ(t.epilogue.outputs[0].order, Order::column);
}

/// What a compiler makes of the configuration's constant is the configuration.
TEST(EpilogueFunction, TheConstantEqualsTheConfiguration) {
  if (!nvrtc_available()) GTEST_SKIP() << "NVRTC was not found";
  std::string source = plan(layer(256, 256, 512, kPlanOnlyH100))->kernel_source();
  source +=
      "static_assert(config.epilogue.function.inputs == 2 && config.epilogue.function.outputs == 1);\n"
      "static_assert(config.epilogue.function.input(1).shape == cleave::InputShape::column);\n"
      "static_assert(config.epilogue.function.output(0).pairs);\n"
      "static_assert(config.epilogue.function.count(cleave::InputShape::row) == 1);\n";
  const CompiledKernel kernel = compile_uncached(source, "sm_90a");
  EXPECT_EQ(kernel.resources.stack_bytes, 0u);
  EXPECT_EQ(kernel.log.find("serialized"), kernel.log.npos) << kernel.log;
}

TEST(Elementwise, NansPassThroughExtremes) {
  for (const Elementwise extreme : {Elementwise::minimum, Elementwise::maximum}) {
    EXPECT_TRUE(std::isnan(apply(extreme, NAN, 1.0f)));
    EXPECT_TRUE(std::isnan(apply(extreme, 1.0f, NAN)));
  }
  EXPECT_EQ(float_bits(apply(Elementwise::absolute, -0.0f)), 0u);
  EXPECT_EQ(apply(Elementwise::to_int8, 300.0f), 127.0f);
  EXPECT_EQ(apply(Elementwise::to_float16, 1.0f + 0x1p-12f), 1.0f);
}

}  // namespace
}  // namespace cleave
