// A plan for a GPU: one choice, its parameters filled in as far as they do not depend on pointers.
#pragma once

#include <memory>
#include <string>

#include "cleave/gemm.h"
#include "plan/choice/choice.h"

namespace cleave {

/// A plan that was chosen.
class ChosenPlan : public GemmPlan {
 public:
  virtual const Choice& choice() const = 0;
};

/// Its one launch, or that of a part. `why`: for GemmPlan::why().
std::shared_ptr<const ChosenPlan> make_gpu_plan(const GemmProblem& problem, const Choice& choice, std::string why);

/// The choice behind a GPU plan; nullptr for a CPU plan.
CLEAVE_TOOLS const Choice* choice_of(const GemmPlan& plan);

}  // namespace cleave
