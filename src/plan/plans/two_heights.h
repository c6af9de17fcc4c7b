// A product of a packed weight in two launches, which have the weight's rows between them: whole waves of tall tiles,
// and tiles of another height for what is left. Tall tiles are few, so that their last wave can be nearly empty; with
// `stream_k` it is full, but parts of tiles go through memory.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "plan/catalogue/candidates.h"
#include "plan/plans/gpu_plan.h"

namespace cleave {

struct TwoHeights {
  GemmProblem whole;
  Choice tall, rest;  ///< of the weight's first rows, and of the others
  double predicted_us() const { return tall.predicted_us + rest.predicted_us; }
};

/// What is predicted to be faster than `best`, the fastest in one launch. Nothing if nothing is, or if the problem is
/// none that can be parted.
std::optional<TwoHeights> find_two_heights(const GemmProblem& problem, const DeviceInfo& device, const Choice& best);

/// The choices of a plan's two launches; none if it is no such plan.
struct Heights {
  const Choice *tall = nullptr, *rest = nullptr;
};
Heights heights_of(const GemmPlan& plan);

/// Shows `best` wherever one choice is asked for.
std::shared_ptr<const ChosenPlan> make_two_heights_plan(const TwoHeights& heights, const Choice& best, std::string why);

}  // namespace cleave
