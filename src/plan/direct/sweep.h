// Convolutions of 16 to 192 channels by WGMMA, line by line down the images (cleave/direct/sweep.h): which are served,
// and by which cuts.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

/// The cut that is predicted to be fastest, if the kernel serves the problem.
std::optional<Spec> direct_sweep_spec(const GemmProblem& problem, const DeviceInfo& device);

/// As make_direct_choice, for a spec of lines ahead.
std::optional<Choice> make_direct_sweep_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

DirectShape direct_sweep_shape(const Choice& choice);

double predict_direct_sweep_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
