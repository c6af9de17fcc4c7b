// The tiles that there are kernels for.
#pragma once

#include <cstdint>
#include <vector>

#include "cleave/core/enums.h"
#include "cleave/gemm.h"
#include "plan/choice/spec.h"

namespace cleave {

/// Every tile of a family, in every order and multicast; of all families for `automatic`. `products`: with those that
/// only products of matrices have.
std::vector<Spec> tiles(KernelFamily family, bool products);

/// Those that are considered for `problem`.
std::vector<Spec> tiles(const GemmProblem& problem);

/// Whether the tile is one of any problem's, in whatever order and multicast.
bool is_tile(Spec tile);

/// Whether tiles have a multicast of that many CTAs, or none.
bool is_multicast(uint32_t m, uint32_t n);

/// Large enough that sharing a load pays for keeping two CTAs in step.
bool worth_multicast(const Spec& tile);

}  // namespace cleave
