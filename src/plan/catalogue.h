// Every kernel the planner can choose.
#pragma once

#include <vector>

#include "plan/choice.h"

namespace cleave {

/// The specs worth considering for `problem`, each a valid choice, with predicted times, cheapest
/// first. Explicit requests (kernel, split mode, slices) restrict the list; it is empty only if
/// nothing serves the problem.
std::vector<Choice> candidates(const GemmProblem& problem, const DeviceInfo& device);

/// One configuration of every kernel that candidates() can name on `device`, for `cleave compile
/// --all`.
std::vector<GemmConfig> all_configs(const DeviceInfo& device);

}  // namespace cleave
