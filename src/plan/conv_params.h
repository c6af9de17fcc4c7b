// The parameters of a convolution's kernel, as far as they do not depend on pointers.
#pragma once

#include <cstddef>
#include <vector>

#include "cleave/kernel/gemm_params.h"
#include "plan/choice.h"

namespace cleave {

/// The bytes of a kernel's ConvParams. What it begins with is `gemm`.
std::vector<std::byte> make_conv_params(const Choice& choice, const GemmParams& gemm);

/// Points the tensor maps in `params` at the operands and at D.
void place_conv_maps(const Choice& choice, void* params, const GemmArguments& arguments);

}  // namespace cleave
