// Convolutions, and which kernels an H100 has for them.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "conv_problems.h"
#include "plan/choice/choice.h"
#include "plan/choice/spec.h"
#include "plan/model_device.h"

namespace cleave {

inline constexpr ConvAxis kNone = {};

inline const DeviceInfo& h100() {
  static const DeviceInfo device = model_device("sm_90a");
  return device;
}

inline std::optional<Choice> choose(const GemmProblem& problem, const std::string& spec) {
  return make_choice(problem, h100(), parse_spec(spec).value());
}

inline bool serves(const GemmProblem& problem, const std::string& spec) {
  return choose(problem, spec).has_value();
}

/// By im2col; the portable kernel serves everything.
inline bool mapped(const GemmProblem& problem) {
  EXPECT_TRUE(serves(problem, "portable 64x64"));
  return serves(problem, "sm90 128x128");
}

inline GemmProblem problem(const ConvLayout& conv, int64_t groups = 1, DType type = DType::f16) {
  return implicit_gemm(conv, groups, type, type);
}

/// 3 x 3 taps at stride 2, padded by one pixel.
inline ConvLayout layer(Conv kind, int64_t channels = 128, int64_t filters = 256) {
  const ConvAxis axis{.size = 28, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  return {.kind = kind, .images = 8, .channels = channels, .filters = filters, .axes = {kNone, axis, axis}};
}

/// With `axis` as its width.
inline ConvLayout along_width(Conv kind, const ConvAxis& axis, const ConvAxis& depth = kNone) {
  return {.kind = kind, .images = 2, .channels = 64, .filters = 64, .axes = {depth, {.size = 8}, axis}};
}

}  // namespace cleave
