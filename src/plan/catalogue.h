// Every kernel the planner can choose.
#pragma once

#include <optional>
#include <vector>

#include "plan/choice.h"

namespace cleave {

/// Which kernels are considered.
enum class Kernels : uint8_t {
  all,
  covering,    ///< those of the covering set (covering.h), where there is one that serves the problem
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

/// Whether `spec` is of the catalogue's tiles, multicasts and slices: a measurement may have had it,
/// though candidates() leaves out what never paid (shared loads of small tiles).
bool is_listed(const Spec& spec);

/// Whether `problem` is a product of matrices, neither grouped nor a convolution.
bool is_product(const GemmProblem& problem);

/// Every tile of a family, in every order and multicast; of both families for `automatic`. `products`: with
/// those that only products of matrices have.
std::vector<Spec> tiles(KernelFamily family, bool products);

/// Those that are considered for `problem`.
std::vector<Spec> tiles(const GemmProblem& problem);

/// `tile` as it is, and in the ways that convolutions with few channels, or filters, and products with few rows have
/// beside.
std::vector<Spec> variants(const Spec& tile, const GemmProblem& problem);

}  // namespace cleave
