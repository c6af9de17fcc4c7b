// The covariance of a tall table, X^T X / rows: two small dimensions and a very long one, the shape
// split-K is for.
//
// The CPU backend computes it, since host memory is what a program without CUDA has. Where there is
// a GPU, the program also prints how Cleave would run it there; pass device pointers to such a plan
// to do so.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

#include "cleave/device.h"
#include "cleave/gemm.h"

namespace {

constexpr int64_t rows = 20000;
constexpr int64_t columns = 64;

// A and B are the same row-major table; A is read as its transpose.
cleave::GemmProblem covariance_problem(int device) {
  return {
      .m = columns,
      .n = columns,
      .k = rows,
      .a = {.dtype = cleave::DType::f32, .stride_row = 1, .stride_col = columns},
      .b = {.dtype = cleave::DType::f32, .stride_row = columns, .stride_col = 1},
      .d = {.dtype = cleave::DType::f32, .stride_row = columns, .stride_col = 1},
      .device = device,
  };
}

std::vector<float> random_table() {
  std::mt19937 generator(0);
  std::normal_distribution<float> normal;
  std::vector<float> table(rows * columns);
  for (float& value : table) value = normal(generator);
  return table;
}

// The largest difference from the same sums taken in double precision.
double largest_error(const std::vector<float>& table, const std::vector<float>& covariance) {
  std::vector<double> expected(columns * columns);
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = &table[row * columns];
    for (int64_t i = 0; i < columns; ++i) {
      for (int64_t j = 0; j < columns; ++j) expected[i * columns + j] += double(x[i]) * x[j] / rows;
    }
  }
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error = std::max(error, std::abs(expected[i] - covariance[i]));
  }
  return error;
}

void explain(const char* where, const cleave::GemmPlan& plan) {
  std::printf("%s: %s, %d slices of K, %zu bytes of workspace\n  %s\n", where, plan.kernel_name().c_str(),
              plan.split_k_slices(), plan.workspace_size(), plan.why().c_str());
}

int run() {
  if (cleave::device_count() > 0) explain("GPU 0", *cleave::plan(covariance_problem(0)));

  const std::vector<float> table = random_table();
  std::vector<float> covariance(columns * columns);
  const auto plan = cleave::plan(covariance_problem(cleave::kCpu));
  explain("CPU", *plan);
  plan->run({.a = table.data(), .b = table.data(), .d = covariance.data(), .alpha = 1.0f / rows}, nullptr);

  const double error = largest_error(table, covariance);
  std::printf("largest error against double precision: %.1e\n", error);
  return error < 1e-3 ? 0 : 1;
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
