// Randomly drawn GEMM problems with their data and their expected values.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <random>
#include <vector>

#include "cleave/core/element.h"
#include "cleave/gemm.h"

namespace cleave {

inline constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}
  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool coin() { return number(0, 1) == 1; }
  float real() { return std::uniform_real_distribution<float>(-1, 1)(random_); }
  template <class T, size_t n>
  T pick(const T (&from)[n]) {
    return from[number(0, n - 1)];
  }

 private:
  std::mt19937 random_;
};

/// A batch of matrices with memory around and between them that nobody may touch.
class Tensor {
 public:
  Tensor(Random& random, DType type, int64_t rows, int64_t columns, int64_t batch, bool row_major,
         bool may_broadcast) {
    const int64_t gap = random.number(0, 5);
    layout = {.dtype = type,
              .stride_row = row_major ? columns + gap : 1,
              .stride_col = row_major ? 1 : rows + gap,
              .stride_batch = (row_major ? rows * (columns + gap) : columns * (rows + gap)) +
                              random.number(0, 5),
              .alignment = size_of(type)};
    const int64_t elements = kMargin + layout.stride_batch * batch + kMargin;
    if (may_broadcast && random.coin()) layout.stride_batch = 0;
    bytes.assign(elements * size_of(type), 0xEE);
  }

  void* data() { return bytes.data() + kMargin * size_of(layout.dtype); }
  int64_t at(int64_t b, int64_t i, int64_t j) const {
    return b * layout.stride_batch + i * layout.stride_row + j * layout.stride_col;
  }
  float get(int64_t b, int64_t i, int64_t j) {
    return load_element(layout.dtype, data(), at(b, i, j));
  }
  void set(int64_t b, int64_t i, int64_t j, float value) {
    store_element(layout.dtype, data(), at(b, i, j), value);
  }

  MatrixLayout layout;
  std::vector<unsigned char> bytes;

 private:
  static constexpr int64_t kMargin = 16;
};

inline double activated(Activation kind, double x) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return NAN;
}

struct Shape {
  int64_t m, n, k, batch = 1;
};

/// A problem with its data.
struct Case {
  Case(Random& random, const Shape& shape, bool integers)
      : type(random.pick(kTypes)),
        d_row_major(random.number(0, 3) != 0),
        a(random, type, shape.m, shape.k, shape.batch, random.coin(), true),
        b(random, type, shape.k, shape.n, shape.batch, random.coin(), true),
        c(random, random.pick(kTypes), shape.m, shape.n, shape.batch, d_row_major, true),
        d(random, random.pick(kTypes), shape.m, shape.n, shape.batch, d_row_major, false) {
    const auto draw = [&] { return integers ? float(random.number(-2, 2)) : random.real(); };
    const auto fill = [&](Tensor& t, int64_t rows, int64_t columns) {
      for (int64_t e = 0; e < shape.batch; ++e) {
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns; ++j) t.set(e, i, j, draw());
        }
      }
    };
    fill(a, shape.m, shape.k);
    fill(b, shape.k, shape.n);
    fill(c, shape.m, shape.n);
    problem = {.m = shape.m,
               .n = shape.n,
               .k = shape.k,
               .batch = shape.batch,
               .a = a.layout,
               .b = b.layout,
               .c = c.layout,
               .d = d.layout};
    problem.has_c = random.coin();
    problem.bias = random.pick({Bias::none, Bias::row, Bias::column});
    problem.bias_dtype = random.pick(kTypes);
    problem.device = kCpu;
    bias.resize(std::max(shape.m, shape.n));
    for (size_t i = 0; i < bias.size(); ++i) {
      store_element(problem.bias_dtype, bias.data(), int64_t(i), draw());
    }
    alpha = float(random.number(-2, 2));
    beta = float(random.number(-1, 1));
  }

  GemmArguments arguments() {
    return {.a = a.data(),
            .b = b.data(),
            .c = c.data(),
            .d = d.data(),
            .bias = bias.data(),
            .alpha = alpha,
            .beta = beta};
  }

  double expected(int64_t e, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t p = 0; p < problem.k; ++p) sum += double(a.get(e, i, p)) * b.get(e, p, j);
    double value = alpha * sum;
    if (problem.has_c && beta != 0) value += double(beta) * c.get(e, i, j);
    if (problem.bias != Bias::none) {
      value += load_element(problem.bias_dtype, bias.data(), problem.bias == Bias::row ? j : i);
    }
    return activated(problem.activation, value);
  }

  DType type;
  bool d_row_major;
  Tensor a, b, c, d;
  std::vector<float> bias;
  GemmProblem problem;
  float alpha, beta;
};

}  // namespace cleave
