// The epilogue against double: D = activation(alpha * sum + beta * C + bias).

#include "cleave/epilogue/epilogue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace cleave {
namespace {

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu_tanh,
                                       Activation::gelu_erf, Activation::silu};
constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};

double reference(Activation kind, double x) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3))));
    case Activation::gelu_erf:
      return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return NAN;
}

TEST(Epilogue, ActivationsMatchTheirDefinition) {
  for (const Activation kind : kActivations) {
    for (float x = -12; x <= 12; x += 0.0078125f) {
      ASSERT_NEAR(activate(kind, x), reference(kind, x), 2e-6 * std::max(1.0f, std::abs(x)))
          << int(kind) << " at " << x;
    }
  }
}

TEST(Epilogue, ActivationsAtTheEdges) {
  for (const Activation kind : kActivations) {
    EXPECT_TRUE(std::isnan(activate(kind, NAN))) << int(kind);
    EXPECT_EQ(activate(kind, 0.0f), 0.0f) << int(kind);
    EXPECT_EQ(activate(kind, 1e4f), 1e4f) << int(kind);
    if (kind != Activation::none) {
      EXPECT_EQ(activate(kind, -1e4f), 0.0f) << int(kind);
    }
  }
}

TEST(Epilogue, EveryCombination) {
  constexpr uint32_t m = 5, n = 7, batches = 2;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-2, 2);
  for (const DType c_type : kTypes) {
    for (const Order order : {Order::row, Order::column}) {
      EpilogueParams p;
      p.m = m;
      p.n = n;
      p.c_stride = (order == Order::row ? n : m) + 3;
      p.c_batch_stride = p.c_stride * 8;
      std::vector<float> c(batches * p.c_batch_stride), bias(m + n);
      for (int64_t i = 0; i < int64_t(c.size()); ++i)
        store_element(c_type, c.data(), i, value(random));
      for (int64_t i = 0; i < m + n; ++i) store_element(c_type, bias.data(), i, value(random));
      p.c = c.data();
      p.bias = bias.data();
      for (const Bias bias_kind : {Bias::none, Bias::row, Bias::column}) {
        for (const Activation activation : kActivations) {
          for (const bool has_c : {false, true}) {
            const EpilogueKind kind{c_type,     DType::f32, c_type, order,
                                    activation, bias_kind,  has_c};
            p.alpha = value(random);
            p.beta = value(random);
            for (uint32_t batch = 0; batch < batches; ++batch) {
              for (uint32_t i = 0; i < m; ++i) {
                for (uint32_t j = 0; j < n; ++j) {
                  const float sum = value(random);
                  const int64_t at =
                      batch * p.c_batch_stride +
                      (order == Order::row ? i * p.c_stride + j : j * p.c_stride + i);
                  double expected = double(p.alpha) * sum;
                  if (has_c) expected += double(p.beta) * load_element(c_type, c.data(), at);
                  if (bias_kind == Bias::row) expected += load_element(c_type, bias.data(), j);
                  if (bias_kind == Bias::column) expected += load_element(c_type, bias.data(), i);
                  ASSERT_NEAR(epilogue_value(kind, p, sum, i, j, batch),
                              reference(activation, expected), 1e-5);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(Epilogue, BetaZeroNeverReadsC) {
  const EpilogueKind kind{DType::f32,       DType::f32, DType::f32, Order::row,
                          Activation::none, Bias::none, true};
  EpilogueParams p;
  p.alpha = 3.0f;
  p.c = nullptr;  // a read would crash
  EXPECT_EQ(epilogue_value(kind, p, 2.0f, 0, 0, 0), 6.0f);
  const float nan = NAN;
  p.c = &nan;
  EXPECT_EQ(epilogue_value(kind, p, 2.0f, 0, 0, 0), 6.0f);
  p.beta = 1.0f;
  EXPECT_TRUE(std::isnan(epilogue_value(kind, p, 2.0f, 0, 0, 0)));
}

TEST(Epilogue, OffsetsPass32Bits) {
  EXPECT_EQ(epilogue_offset(Order::row, 1'000'000, 2'000'000, 5), 2'000'000'000'005);
  EXPECT_EQ(epilogue_offset(Order::column, 1'000'000, 5, 2'000'000), 2'000'000'000'005);
}

}  // namespace
}  // namespace cleave
