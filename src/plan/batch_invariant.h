// Plans whose rows of D do not depend on how many other rows there are.
//
// What of a plan changes the bits of a sum was measured (docs/determinism.md): the family of kernels, and, where K is
// split or sums are promoted, the elements of K in a block, the number of slices and how many of them meet first. That
// is a SumOrder. One is chosen for all M and any number of groups, from N, K, types and layouts alone; each problem
// then takes the fastest kernel of that order. Determinism::k_order has one slice, of the kernels that types and
// layouts alone decide.
#pragma once

#include <optional>
#include <vector>

#include "plan/catalogue/candidates.h"

namespace cleave {

struct SumOrder {
  KernelFamily family;
  uint32_t block;  ///< elements of K that are added up as one; 0 where they follow each other without a break
  uint32_t slices;
  uint32_t together;  ///< slices that meet first; their sums then do

  friend bool operator==(const SumOrder&, const SumOrder&) = default;
};

/// Nothing of kernels whose bits were not compared: narrow ones, stream_k.
std::optional<SumOrder> sum_order(const Choice& choice);

/// The order for the problem's N, K, types and layouts: of those that serve every M, the one whose expected time falls
/// least behind that of each M's best, over M from 1 to 4096. Kept by the process. Nothing if there is none.
std::optional<SumOrder> invariant_order(const GemmProblem& problem, const DeviceInfo& device);

/// candidates(), or, of a batch-invariant problem, those of invariant_order(), of all kernels.
std::vector<Choice> promised_candidates(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels);

/// What the problem runs as: cheapest(), or, of a batch-invariant one, the fastest of invariant_order() for its own M,
/// of all kernels.
Cheapest promised_cheapest(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels);

}  // namespace cleave
