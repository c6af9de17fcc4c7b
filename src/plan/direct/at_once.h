// The choice of kernels for convolutions of narrow groups of small images, and for their data gradients
// (direct/at_once.h).
#pragma once

#include <optional>

#include "cleave/conv/direct_conv.h"
#include "plan/choice/choice.h"

namespace cleave {

/// The cut that is predicted to be fastest; nothing for problems that the kernel does not serve.
std::optional<Spec> direct_at_once_spec(const GemmProblem& problem, const DeviceInfo& device);

/// The choice of any cut that fits.
std::optional<Choice> make_direct_at_once_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                 const Spec& spec);

DirectShape direct_at_once_shape(const Choice& choice);

double predict_direct_at_once_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
