#include "plan/plans/quantize_apart.h"

#include <algorithm>

#include "problem/problem.h"

namespace cleave {
namespace {

// The second kernel's time, as measured on an H200 (docs/notes/2026-11-quantised-outputs.md).
constexpr double kLaunchUs = 1.2;
constexpr double kGateUs = 1.0;       // of a gate in the product, which its model does not know
constexpr double kCacheBytes = 24e6;  // that L2 still has,
constexpr double kCacheBytesPerUs = 5e6;
constexpr double kMemory = 0.6;  // and of memory's bandwidth, where D goes there and comes back

}  // namespace

bool may_quantize_apart(const GemmProblem& p, bool halves) {
  if (!finds_scales(p) || !is_product(p) || p.batch > 1 || p.has_amax) return false;
  if (p.has_c && size_of(p.c.dtype) == 1) return false;  // it could be D's type
  // A packed weight's gates and ups take turns.
  return !halves || (activation_of(p) == Activation::swiglu && p.weights_b.format == WeightFormat::none);
}

GemmProblem unquantized(const GemmProblem& problem, bool halves) {
  GemmProblem p = problem;
  if (halves) {
    p.n *= 2;
    p.epilogue = EpilogueProblem();
  }
  p.d = {.dtype = DType::f32, .stride_row = p.n};
  p.scale_out = {};
  p.ue8m0_scale_out = false;
  return p;
}

size_t unquantized_bytes(const GemmProblem& p) {
  return size_t(p.m) * size_t(p.n) * sizeof(float) + 16;
}

QuantizeProblem quantization_of(const GemmProblem& p, bool halves) {
  const int64_t columns = halves ? 2 * p.n : p.n;
  return {.rows = p.m,
          .cols = p.n,
          .granularity = Granularity::block_1x128,
          .x = {.dtype = DType::f32, .stride_row = columns},
          .q = {.dtype = p.d.dtype, .stride_row = p.d.stride_row, .alignment = p.d.alignment},
          .scale = {.dtype = DType::f32,
                    .stride_row = p.scale_out.stride_row,
                    .stride_col = p.scale_out.stride_k,
                    .alignment = sizeof(float)},
          .gated = halves,
          .ue8m0_scale = p.ue8m0_scale_out,
          .device = p.device};
}

double quantize_apart_us(const GemmProblem& product, bool halves, const DeviceInfo& device) {
  const double d = double(unquantized_bytes(product)), written = d / sizeof(float) / (halves ? 2 : 1);
  const double cached = std::min(d, kCacheBytes), rest = d - cached;
  // The product's own time has D's way to memory once, at full bandwidth.
  const double gate = is_gated(product) ? kGateUs : 0.0;
  return kLaunchUs + gate + (cached + written) / kCacheBytesPerUs + 2 * rest / (device.memory_gb_per_s * 1e3 * kMemory);
}

}  // namespace cleave
