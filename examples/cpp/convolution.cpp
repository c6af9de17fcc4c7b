// A strided convolution and its data gradient. Each is the other's transpose, so that for any x and y
//
//   <conv(x), y> = <x, dgrad(y)>
//
// and the program checks that they are, on the CPU backend. Where there is a GPU, it also prints how
// Cleave would run them there; pass device pointers to such a plan to do so.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

#include "cleave/conv.h"
#include "cleave/device.h"

namespace {

// 64 filters of 3 x 3 taps on 4 images of 28 x 28 pixels and 32 channels.
cleave::GemmProblem convolution(cleave::Conv kind, int device) {
  const cleave::ConvAxis axis{.size = 28, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  const cleave::ConvLayout conv{.kind = kind, .images = 4, .channels = 32, .filters = 64, .axes = {{}, axis, axis}};
  auto problem = cleave::implicit_gemm(conv, 1, cleave::DType::f32, cleave::DType::f32);
  problem.device = device;
  return problem;
}

std::vector<float> random_values(int64_t count) {
  static std::mt19937 generator(0);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * b[i];
  return sum;
}

void explain(const char* what, const cleave::GemmPlan& plan) {
  std::printf("%s: %s\n  %s\n", what, plan.kernel_name().c_str(), plan.why().c_str());
}

int run() {
  using cleave::Conv;
  if (cleave::device_count() > 0) {
    explain("GPU 0, fprop", *cleave::plan(convolution(Conv::fprop, 0)));
    explain("GPU 0, dgrad", *cleave::plan(convolution(Conv::dgrad, 0)));
  }

  const auto forward = cleave::plan(convolution(Conv::fprop, cleave::kCpu));
  const auto backward = cleave::plan(convolution(Conv::dgrad, cleave::kCpu));
  const int64_t outputs = forward->problem().m, pixels = backward->problem().m;

  const auto x = random_values(pixels * 32), w = random_values(64 * 3 * 3 * 32);
  const auto dy = random_values(outputs * 64);
  std::vector<float> y(outputs * 64), dx(pixels * 32);
  forward->run({.a = x.data(), .b = w.data(), .d = y.data()}, nullptr);
  backward->run({.a = dy.data(), .b = w.data(), .d = dx.data()}, nullptr);

  const double one = dot(y, dy), other = dot(x, dx);
  std::printf("<conv(x), dy> = %.4f, <x, dgrad(dy)> = %.4f\n", one, other);
  return std::abs(one - other) < 1e-6 * std::sqrt(dot(y, y) * dot(dy, dy)) ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
