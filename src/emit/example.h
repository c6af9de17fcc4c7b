// The words of an operation's example, which draws operands and checks elements of D.
#pragma once

#include "cleave/gemm.h"
#include "emit/template.h"

namespace cleave {

/// Adds them to the operation's own.
void describe_example(const GemmProblem& problem, Vocabulary& vocabulary);

}  // namespace cleave
