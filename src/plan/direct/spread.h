// Outputs of few filters, and data gradients of few channels, by tensor cores (cleave/direct/spread.h): which are
// served, and how they are cut.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

/// The spec that suits the problem; nothing if the kernel cannot serve it.
std::optional<Spec> direct_spread_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_choice: tile_m gathered pixels of a step, tile_n channels of a CTA.
std::optional<Choice> make_direct_spread_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

/// What the launch has to know of the images.
DirectShape direct_spread_shape(const Choice& choice);

double predict_direct_spread_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
