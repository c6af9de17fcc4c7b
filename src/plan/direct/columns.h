// The choice of kernels for convolutions of narrow groups down the images, and for their data gradients
// (direct/columns.h).
#pragma once

#include <optional>

#include "cleave/conv/direct_conv.h"
#include "plan/choice/choice.h"

namespace cleave {

/// The cut that is predicted to be fastest; nothing for problems that the kernel does not serve.
std::optional<Spec> direct_columns_spec(const GemmProblem& problem, const DeviceInfo& device);

/// The same with lines on their way to shared memory (direct/column_ring.h).
std::optional<Spec> direct_column_rings_spec(const GemmProblem& problem, const DeviceInfo& device);

/// The choice of any cut that fits.
std::optional<Choice> make_direct_columns_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                 const Spec& spec);

DirectShape direct_columns_shape(const Choice& choice);

double predict_direct_columns_us(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
