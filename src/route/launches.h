// The kernel that a GPU runs for a problem.
#pragma once

#include <string>
#include <vector>

#include "cleave/route.h"
#include "cleave/route/route_config.h"
#include "cleave/route/route_params.h"
#include "runtime/kernel_sequence.h"

namespace cleave {

/// Kernels; each has a header of its name in kernels/cleave/route.
enum class RouteKernel { choose };

/// The name of every kernel's entry point.
inline constexpr const char* route_entry = "cleave_route";

/// What NVRTC compiles.
std::string translation_unit(RouteKernel kernel, const RouteConfig& config);

using RouteLaunch = KernelLaunch<RouteKernel, RouteConfig, RouteParams>;

/// None without tokens. `problem` has passed `validate`.
std::vector<RouteLaunch> route_launches(const RouteProblem& problem);

}  // namespace cleave
