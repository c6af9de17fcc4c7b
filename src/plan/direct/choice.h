// Convolutions of narrow groups and of few channels (kernel/conv_direct.h and those that it names): which are served,
// and how they are cut.
#pragma once

#include <optional>
#include <vector>

#include "plan/choice/choice.h"

namespace cleave {

/// Whether it has nothing but what kernels of this family have: a cut, and weight gradients slices.
bool is_direct_spec(const Spec& spec);

/// For each method that serves the problem, the spec that suits it.
std::vector<Spec> direct_specs(const GemmProblem& problem, const DeviceInfo& device);

/// As make_choice, for a spec of this family, which is one method's alone: tile_m pixels of a thread (of a tile, of a
/// step), tile_n channels of a CTA.
std::optional<Choice> make_direct_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

/// What the launch has to know of the images.
DirectShape direct_shape(const Choice& choice);

double predict_direct_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
