// What follows from a ConvLayout, or the problem that has it, alone, and only the library asks for.
#pragma once

#include <optional>

#include "cleave/conv.h"

namespace cleave {

/// The product of matrices, with the same arguments, that a convolution is whose filters have one tap: of one group, a
/// stride of 1 and no padding, so that each pixel is a row as it lies. Nothing of any other.
std::optional<GemmProblem> matrix_product(const GemmProblem& problem);

/// Any of the groups of a convolution, as a convolution of its own: they differ in their arguments alone (group_of).
GemmProblem one_group(const GemmProblem& problem);

/// The arguments of group `group`, counted from 0, of those of all groups.
GemmArguments group_of(const GemmProblem& problem, const GemmArguments& all, int64_t group);

/// Pixels of the images that some tap reads, in fprop and wgrad: fewer than there are where the
/// stride is larger than the filter.
int64_t pixels_read(const ConvLayout& conv);

}  // namespace cleave
