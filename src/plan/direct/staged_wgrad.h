// Weight gradients of narrow groups from lines of pixels in shared memory (cleave/direct/staged_wgrad.h): which are
// served, and how they are cut.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

/// The spec that suits the problem; nothing where the kernel cannot serve it, or filters have so few taps along a line
/// that threads do not share enough.
std::optional<Spec> direct_staged_wgrad_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_choice: strips of tile_m outputs, tile_n channels of a CTA, slices of all columns' lines.
std::optional<Choice> make_direct_staged_wgrad_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                      const Spec& spec);

DirectShape direct_staged_wgrad_shape(const Choice& choice);

double predict_direct_staged_wgrad_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
