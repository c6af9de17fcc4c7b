// What a kernel is compiled for of what the epilogue reads: an epilogue function's inputs, and C.
#pragma once

#include "cleave/config/epilogue_params.h"
#include "cleave/problem.h"

namespace cleave {

/// `problem` as has_pairs takes it; `fuses_classes`: ConvConfig's.
FunctionConfig function_config(const GemmProblem& problem, bool fuses_classes);

/// EpilogueConfig::c_pairs; the same problem.
bool c_has_pairs(const GemmProblem& problem, bool fuses_classes);

/// EpilogueConfig::c_words: of what is added to float32 in groups of K.
bool c_has_words(const GemmProblem& problem);

}  // namespace cleave
