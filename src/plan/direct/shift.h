// Convolutions of groups of few channels, and their data gradients, by tensor cores (cleave/direct/shift.h): which
// are served, and how they are cut.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

/// The spec that suits the problem; nothing if the kernel cannot serve it.
std::optional<Spec> direct_shift_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_choice: tile_m cells and tile_n channels of a tile, or more of either.
std::optional<Choice> make_direct_shift_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

/// What the launch has to know of the images.
DirectShape direct_shift_shape(const Choice& choice);

double predict_direct_shift_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
