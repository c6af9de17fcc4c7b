// An epilogue function's inputs as operators of frameworks have them, whose lists hold tensors or numbers, not both.
#pragma once

#include <cstdint>
#include <span>

#include "operands/gemm_operands.h"

namespace cleave {

/// `number_places`: of the numbers among the inputs, in ascending order. Throws Error(invalid_argument) for what are
/// not the function's inputs. Outputs beside D are to be made.
EpilogueTensors epilogue_tensors(const EpilogueFunction& function, std::span<const Operand> tensors,
                                 std::span<const double> numbers, std::span<const int64_t> number_places);

}  // namespace cleave
