// From the tensors of a call to a LoraProblem and its pointers: what every front end shares.
#pragma once

#include <optional>

#include "cleave/lora.h"
#include "operands/operand.h"

namespace cleave {

struct LoraTensors {
  std::optional<Operand> x, a, b, offs, out;
};

struct LoraCall {
  LoraProblem problem;
  LoraArguments arguments;
};

/// Throws Error for everything that is wrong with one tensor or with how they fit together.
LoraCall make_call(const LoraTensors& tensors, double scale);

}  // namespace cleave
