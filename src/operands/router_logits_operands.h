// From the tensors of a call to a RouterLogitsProblem and its pointers: what every front end shares.
#pragma once

#include <optional>

#include "cleave/router_logits.h"
#include "operands/operand.h"

namespace cleave {

struct RouterLogitsTensors {
  std::optional<Operand> x, weight;
};

struct RouterLogitsCall {
  RouterLogitsProblem problem;
  RouterLogitsArguments arguments;  ///< without what will be written
};

/// Throws Error for everything that is wrong with one tensor or with how they fit together.
RouterLogitsCall make_call(const RouterLogitsTensors& tensors, bool static_weight);

}  // namespace cleave
