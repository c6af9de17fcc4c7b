// Weight gradients of narrow groups by multiply-adds (cleave/direct/pixels_wgrad.h): which are served, and how they are
// cut.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

inline constexpr uint32_t kMostGradientTaps = 11;  // along an axis

/// Whether threads that have one line of a filter's taps each can serve the problem, and how many channels such a
/// thread loads at once: as many as there are registers for its sums.
bool serves_tap_lines(const GemmProblem& problem);
uint32_t tap_line_vector(const GemmProblem& problem);

/// The spec that suits the problem; nothing if the kernel cannot serve it.
std::optional<Spec> direct_wgrad_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_choice: strips of tile_m outputs, tile_n channels of a CTA, slices of the images' lines.
std::optional<Choice> make_direct_wgrad_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

/// What the launch has to know of the images.
DirectShape direct_wgrad_shape(const Choice& choice);

double predict_direct_wgrad_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
