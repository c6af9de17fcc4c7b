// Convolutions of narrow groups, pixel by pixel from shared memory (cleave/direct/pixels.h): which are served, and by
// which cut.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

/// The cut that suits the problem, if its pixels fit into shared memory.
std::optional<Spec> direct_pixels_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_direct_choice, for such a spec.
std::optional<Choice> make_direct_pixels_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

DirectShape direct_pixels_shape(const Choice& choice);

double predict_direct_pixels_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
