// What an epilogue function is called with, read and checked.
#pragma once

#include "operands/conv_operands.h"
#include "operands/gemm_operands.h"

namespace cleave {

/// Fills the call's epilogue, after everything else of it. Throws Error for what does not fit.
void place_epilogue(const EpilogueTensors& tensors, GemmCall& call);
void place_epilogue(const EpilogueTensors& tensors, ConvCall& call);

}  // namespace cleave
