// What may run a problem, and the cheapest of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cleave/device.h"
#include "cleave/gemm.h"
#include "plan/choice/choice.h"

namespace cleave {

/// Which kernels are considered.
enum class Kernels : uint8_t {
  all,
  covering,    ///< those of the covering set (measured/covering.h), where there is one that serves the problem
  any_images,  ///< for convolutions of any size: never those of products
};

/// What CLEAVE_KERNELS says; all, by default. Throws Error(invalid_argument) where it says something else.
Kernels user_kernels();

/// The specs worth considering for `problem`, each a valid choice, with predicted times, cheapest
/// first. Explicit requests (kernel, split mode, slices) restrict the list; it is empty only if
/// nothing serves the problem.
std::vector<Choice> candidates(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels = user_kernels());

struct Cheapest {
  std::optional<Choice> choice;  ///< the first of candidates()
  size_t considered = 0;         ///< how many there are
};
Cheapest cheapest(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels);

}  // namespace cleave
