// Weight gradients of few filters by lines of pixels in registers (cleave/direct/lines_wgrad.h): which are served, and
// how they are cut.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

/// The spec that suits the problem; nothing if the kernel cannot serve it.
std::optional<Spec> direct_lines_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_choice: tile_m outputs of a tile, tile_n channels of a CTA, slices of the tiles.
std::optional<Choice> make_direct_lines_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

/// What the launch has to know of the images.
DirectShape direct_lines_shape(const Choice& choice);

double predict_direct_lines_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
