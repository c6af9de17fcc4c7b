// The parameters of a convolution's kernel.
#pragma once

#include <cstddef>
#include <vector>

#include "cleave/config/gemm_params.h"
#include "plan/choice.h"

namespace cleave {

/// The bytes of a kernel's ConvParams, as far as they do not depend on pointers, but for the maps at
/// their end that no class uses. What they begin with is `gemm`.
std::vector<std::byte> make_conv_params(const Choice& choice, const GemmParams& gemm);

/// Points the classes' tensor maps in `params` at the operands and at D, which it has already.
void place_class_maps(const Choice& choice, void* params);

}  // namespace cleave
