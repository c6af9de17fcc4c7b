// Randomly drawn convolutions with their data and their expected values.
#pragma once

#include <utility>
#include <vector>

#include "cleave/epilogue.h"
#include "conv_geometry.h"
#include "cpu_gemm_case.h"
#include "problem/problem.h"

namespace cleave {

/// A convolution with its tensors, [group, pixel, channel] or [group, filter, tap x channel].
/// `integers`: small ones, so that sums and values are exact in float32.
struct ConvCase {
  ConvCase(Random& random, const ConvLayout& layout, int64_t number_of_groups, DType type, DType output, bool integers)
      : conv(layout),
        groups(number_of_groups),
        x(of_pixels(random, conv.kind == Conv::dgrad ? output : type, image_pixels(conv), conv.channels)),
        w(of_filters(random, conv.kind == Conv::wgrad ? output : type)),
        y(of_pixels(random, conv.kind == Conv::fprop ? output : type, output_pixels(conv), conv.filters)),
        c(of_d(random, random.pick(kTypes))),
        problem(implicit_gemm(conv, groups, type, output)) {
    problem.device = kCpu;
    problem.a = conv.kind == Conv::fprop ? x.layout : y.layout;
    problem.b = conv.kind == Conv::wgrad ? x.layout : w.layout;
    problem.c = c.layout;
    problem.d = d().layout;
    if (conv.kind == Conv::fprop) std::swap(problem.b.stride_row, problem.b.stride_col);
    if (conv.kind == Conv::wgrad) std::swap(problem.a.stride_row, problem.a.stride_col);

    const auto draw = [&] { return integers ? float(random.number(-2, 2)) : random.real(); };
    const auto fill = [&](Tensor& t, int64_t rows, int64_t columns) {
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns; ++j) t.set(g, i, j, draw());
        }
      }
    };
    if (conv.kind != Conv::dgrad) fill(x, image_pixels(conv), conv.channels);
    if (conv.kind != Conv::wgrad) fill(w, conv.filters, taps(conv) * conv.channels);
    if (conv.kind != Conv::fprop) fill(y, output_pixels(conv), conv.filters);
    if (output == DType::i32) return;

    fill(c, problem.m, problem.n);
    problem.has_c = random.coin();
    problem.bias = conv.kind != Conv::wgrad && random.coin() ? Bias::row : Bias::none;
    problem.bias_dtype = random.pick(kTypes);
    problem.bias_stride_batch = problem.bias == Bias::none ? 0 : problem.n + random.number(0, 3);
    bias.resize(problem.n + problem.bias_stride_batch * groups);
    for (size_t i = 0; i < bias.size(); ++i) {
      store_element(problem.bias_dtype, bias.data(), int64_t(i), draw());
    }
    alpha = float(random.number(-2, 2));
    beta = float(random.number(-1, 1));
  }

  Tensor& d() { return conv.kind == Conv::fprop ? y : conv.kind == Conv::dgrad ? x : w; }

  GemmArguments arguments() {
    return {.a = conv.kind == Conv::fprop ? x.data() : y.data(),
            .b = conv.kind == Conv::wgrad ? x.data() : w.data(),
            .c = c.data(),
            .d = d().data(),
            .bias = bias.data(),
            .alpha = alpha,
            .beta = beta};
  }

  /// Calls visit(group, i, j) for every element of D.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t i = 0; i < problem.m; ++i) {
        for (int64_t j = 0; j < problem.n; ++j) visit(g, i, j);
      }
    }
  }

  /// D's elements, in the order of `for_each`.
  std::vector<double> expected() {
    std::vector<double> values(groups * problem.m * problem.n);
    const auto value = [&](int64_t g, int64_t i, int64_t j) -> double& {
      return values[(g * problem.m + i) * problem.n + j];
    };
    for_each_meeting(conv, [&](int64_t at_x, int64_t tap, int64_t at_y) {
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t filter = 0; filter < conv.filters; ++filter) {
          for (int64_t channel = 0; channel < conv.channels; ++channel) {
            const int64_t at_w = tap * conv.channels + channel;
            switch (conv.kind) {
              case Conv::fprop:
                value(g, at_y, filter) += double(x.get(g, at_x, channel)) * w.get(g, filter, at_w);
                break;
              case Conv::dgrad:
                value(g, at_x, channel) += double(y.get(g, at_y, filter)) * w.get(g, filter, at_w);
                break;
              default:
                value(g, filter, at_w) += double(y.get(g, at_y, filter)) * x.get(g, at_x, channel);
            }
          }
        }
      }
    });
    for_each([&](int64_t g, int64_t i, int64_t j) {
      double& result = value(g, i, j);
      result = problem.k > 0 ? result * alpha : 0;  // never -0
      if (problem.has_c && beta != 0) result += double(beta) * c.get(g, i, j);
      if (problem.bias == Bias::row) {
        const int64_t at = problem.bias_stride_batch * g + j;
        result += load_element(problem.bias_dtype, bias.data(), at);
      }
      result = activated(activation_of(problem), result);
    });
    return values;
  }

  ConvLayout conv;
  int64_t groups;
  Tensor x, w, y, c;
  std::vector<float> bias;
  GemmProblem problem;
  float alpha = 1, beta = 0;

 private:
  /// Channels of a wider tensor: between pixels lies memory that nobody may touch.
  Tensor of_pixels(Random& random, DType type, int64_t pixels, int64_t channels) const {
    Tensor t(random, type, pixels, groups * channels, 1, true, false);
    t.layout.stride_batch = channels;
    return t;
  }
  Tensor of_filters(Random& random, DType type) const {
    return Tensor(random, type, conv.filters, taps(conv) * conv.channels, groups, true, false);
  }
  Tensor of_d(Random& random, DType type) const {
    switch (conv.kind) {
      case Conv::fprop:
        return of_pixels(random, type, output_pixels(conv), conv.filters);
      case Conv::dgrad:
        return of_pixels(random, type, image_pixels(conv), conv.channels);
      default:
        return of_filters(random, type);
    }
  }
};

}  // namespace cleave
