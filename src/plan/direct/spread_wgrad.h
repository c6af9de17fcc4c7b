// Weight gradients of few filters by tensor cores (cleave/direct/spread_wgrad.h): which are served, and how they are
// cut.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

/// The spec that suits the problem; nothing if the kernel cannot serve it.
std::optional<Spec> direct_spread_wgrad_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_choice: tile_m pixels of a tile, tile_n filters of a CTA, slices of the tiles.
std::optional<Choice> make_direct_spread_wgrad_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                      const Spec& spec);

/// What the launch has to know of the images.
DirectShape direct_spread_wgrad_shape(const Choice& choice);

double predict_direct_spread_wgrad_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
