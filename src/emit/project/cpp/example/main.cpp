// Runs the operation on random tensors and compares elements of D with sums in double precision.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "emitted/operation.h"

#include "operands.h"

namespace emitted::operation::example {
namespace {

constexpr int kSamples = 512;

/// How a value of D may differ from a sum in double precision: by half a unit in the last place,
/// and by `absolute` near zero.
struct Rounding {
  double absolute, unit;
  double largest;  // what is beyond is saturated, or infinite
};

constexpr Rounding rounding_of(cleave::DType type) {
  const cleave::DTypeInfo info = cleave::info_of(type);
  if (!info.is_float) return {0.51, 0, info.largest};
  const double absolute = info.bytes == 4 ? 1e-5 : info.bytes == 2 ? 1e-4 : 0.01;
  return {absolute, 1.0 / (1 << std::min<int>(info.mantissa, 20)), info.largest};
}

/// The error of an element, in units of what rounding may cause.
double error_of(const Tensor& made, int64_t index, const Sum& expected) {
  const Rounding rounding = rounding_of(made.type());
  const auto [value, magnitude] = expected;
  if (std::abs(value) > rounding.largest) return 0;
  const double allowed = rounding.absolute + std::abs(value) * rounding.unit + magnitude * kProductError;
  return std::abs(made[index] - value) / allowed;
}

/// The largest error of some elements.
double largest_error(const Operands& x) {
  double largest = 0;
  for (int i = 0; i < kSamples; ++i) {
    const Sample expected = x.draw_sample();
    largest = std::max(largest, error_of(x.d, expected.index, expected.d));
    for (const auto& [sum, tensor, index] : expected.others) largest = std::max(largest, error_of(*tensor, index, sum));
  }
  return largest;
}

int run() {
  DRIVER_CALL(cuInit, 0);
  CUdevice device = 0;
  CUcontext context = nullptr;
  DRIVER_CALL(cuDeviceGet, &device, 0);
  DRIVER_CALL(cuDevicePrimaryCtxRetain, &context, device);
  DRIVER_CALL(cuCtxSetCurrent, context);

  Operands x;
  const Arguments arguments = x.arguments();
  const Operation operation(0);
  if (const std::string reason = operation.why_not(arguments); !reason.empty()) throw std::runtime_error(reason);

  // All of it zero, which is more than the counters alone need.
  Tensor workspace(cleave::DType::i32, int64_t(operation.workspace_size(arguments) / 4));
  operation(arguments, workspace.device(), nullptr);
  DRIVER_CALL(cuCtxSynchronize);
  x.download();

  const double error = largest_error(x);
  std::printf("%d elements of D: the largest error is %.3f of what rounding may cause\n", kSamples, error);
  return error < 1 ? 0 : 1;
}

}  // namespace
}  // namespace emitted::operation::example

int main() {
  try {
    return emitted::operation::example::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
