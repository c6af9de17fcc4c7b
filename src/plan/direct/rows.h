// The choice of kernels for convolutions of one tap and few channels, and for their data gradients (direct/rows.h).
#pragma once

#include <optional>

#include "cleave/conv/direct_conv.h"
#include "plan/choice/choice.h"

namespace cleave {

/// The tile that is predicted to be fastest; nothing for problems that the kernel does not serve.
std::optional<Spec> direct_rows_spec(const GemmProblem& problem, const DeviceInfo& device);

/// The choice of any tile that fits.
std::optional<Choice> make_direct_rows_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

DirectShape direct_rows_shape(const Choice& choice);

double predict_direct_rows_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
