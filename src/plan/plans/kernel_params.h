// The parameters of a choice's kernel as the bytes that a launch passes: GemmParams, or what begins with it.
#pragma once

#include <cstddef>
#include <vector>

#include "cleave/config/gemm_params.h"
#include "launch/reductions.h"
#include "plan/choice/choice.h"

namespace cleave {

inline constexpr size_t kMostParamBytes = 32764;  // of a launch

/// As far as they do not depend on pointers, but for the maps at their end that no class uses. `joins`: of what D is
/// reduced to, if it is.
std::vector<std::byte> make_params(const Choice& choice, const Joins* joins);

/// How many bytes make_params returns, at most.
size_t most_params_bytes(const Choice& choice);

/// Points the tensor maps in `buffer`, which begins with `params`, at the arguments.
void place_maps(const Choice& choice, void* buffer, GemmParams& params);

}  // namespace cleave
