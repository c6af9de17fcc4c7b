// Convolutions of few channels, for kernels that convolve directly.
#pragma once

#include "conv_choice.h"
#include "plan/direct/choice.h"

namespace cleave {

inline GemmProblem few_channels(int64_t channels, int64_t filters, const ConvAxis& height, const ConvAxis& width,
                                Conv kind = Conv::fprop, const ConvAxis& depth = kNone) {
  const ConvLayout conv{
      .kind = kind, .images = 3, .channels = channels, .filters = filters, .axes = {depth, height, width}};
  GemmProblem p = implicit_gemm(conv, 1, DType::f16, DType::f16);
  p.kernel = KernelFamily::direct;
  return p;
}

/// The direct kernel of that method; nothing where it does not serve.
inline std::optional<Choice> direct_choice(const GemmProblem& p, DirectMethod method) {
  for (const Spec& spec : direct_specs(p, h100())) {
    if (auto choice = make_choice(p, h100(), spec); choice && choice->config.direct.method == method) return choice;
  }
  return std::nullopt;
}

}  // namespace cleave
