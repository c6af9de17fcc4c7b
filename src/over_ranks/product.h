// A product that a call over ranks launches.
#pragma once

#include <memory>

#include "cleave/gemm.h"
#include "operands/gemm_operands.h"

namespace cleave {

struct Product {
  std::shared_ptr<const GemmPlan> plan;  // nullptr: what is in `arguments.d` is it
  GemmArguments arguments;

  void launch(void* stream) const {
    if (plan != nullptr) plan->run(arguments, nullptr, 0, stream);
  }
};

/// Plans it, with alpha 1 and no C. Throws Error for operands that do not fit together.
Product product_of(const GemmTensors& tensors, const GemmOptions& options);

/// No split along K by itself, unless products are batch invariant, whose order has its own.
PlanOptions unsplit(PlanOptions options);

}  // namespace cleave
