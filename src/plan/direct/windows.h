// Convolutions of few channels, their weight gradients, and data gradients of few filters, by tensor cores
// (cleave/direct/windows.h): which are served, and how they are cut.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

/// The spec that suits the problem; nothing if the kernel cannot serve it.
std::optional<Spec> direct_windows_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_choice: tile_m pixels and tile_n channels that a CTA makes; wgrad: slices of the tiles.
std::optional<Choice> make_direct_windows_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                 const Spec& spec);

/// What the launch has to know of the images.
DirectShape direct_windows_shape(const Choice& choice);

double predict_direct_windows_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
