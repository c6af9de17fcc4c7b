// An epilogue function as far as an emitted project's calls know it. The library, which knows more of it
// (cleave/epilogue.h), includes this nowhere.
#pragma once

#include "cleave/problem.h"

/// What messages call its inputs, and its outputs beside D.
class cleave::EpilogueFunction {
 public:
  const char* inputs[cleave::kMostEpilogueInputs];
  const char* outputs[cleave::kMostEpilogueOutputs];
};
