// What an epilogue function is called with, read and checked.
#pragma once

#include "operands/conv_operands.h"
#include "operands/gemm_operands.h"

namespace cleave {

/// The function that a product is to have, by its name or itself, or none. Its operands are placed later; before B's
/// columns are asked for, two of which a gate joins, it is there. Throws Error(invalid_argument) where both are given.
EpilogueProblem epilogue_for(Activation activation, const EpilogueFunction* function);

/// The type that D is to have, if an option or its function says so.
std::optional<DType> asked_type(std::optional<DType> option, const EpilogueFunction* function);

/// Throws Error(invalid_argument) for a given D of another type than is asked for.
void check_type_of_out(const Operand& out, std::optional<DType> asked);

/// Fills the call's epilogue, after everything else of it. Throws Error for what does not fit.
void place_epilogue(const EpilogueTensors& tensors, GemmCall& call);
void place_epilogue(const EpilogueTensors& tensors, ConvCall& call);

}  // namespace cleave
