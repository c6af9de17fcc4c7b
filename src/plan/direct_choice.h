// Convolutions of narrow groups by multiply-adds (kernel/conv_direct.h): which are served, and how they are cut.
#pragma once

#include <optional>

#include "plan/choice.h"

namespace cleave {

/// The spec that suits the problem; nothing if the kernel cannot serve it.
std::optional<Spec> direct_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_choice, for a spec of this family: tile_m pixels of a thread, tile_n channels of a CTA.
std::optional<Choice> make_direct_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

/// What the launch has to know of the images.
DirectShape direct_shape(const Choice& choice);

double predict_direct_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
