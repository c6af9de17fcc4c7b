// What a convolution adds to a choice: how its operands lie, and what its kernel has to know.
#pragma once

#include <optional>

#include "plan/choice/choice.h"

namespace cleave {

/// The problem as `spec`'s kernel sees it, or nothing if it cannot serve it.
std::optional<GemmProblem> conv_view(const GemmProblem& problem, const Spec& spec);

/// Whether `problem` is a convolution for which the kernels of products alone are considered: they have more tiles, and
/// a closer model of their time.
bool runs_as_product(const GemmProblem& problem);

/// Whether `problem` is a convolution in a few wide groups, of other than whole k blocks, which one launch of the
/// Hopper kernel does not serve: a k block would reach into the next group. A launch for each does.
bool may_run_by_group(const GemmProblem& problem);

/// Whether lines of half a swizzle atom have fewer channels outside of the pixels' than whole ones.
bool may_halve_lines(const GemmProblem& problem, const Spec& spec);

/// Whether a convolution may be read the other way: a weight gradient with taps' channels as rows and filters as
/// columns, of which tiles have many more sizes; the others, of few filters, with what is made as rows and pixels as
/// columns.
bool may_turn(const GemmProblem& problem, const Spec& spec);
/// Whether it is.
bool is_turned(const GemmProblem& problem, const Spec& spec);

/// Whether the kernel makes a wgrad a batch of products, one for each tap: TMA fetches
/// strips of channels, and a tap of other than whole strips does not fit beside its neighbour.
bool batches_taps(const GemmProblem& problem, const Spec& spec);

/// Whether the kernel's columns are those of the filters' matrix as it lies (fused_classes.h).
bool makes_patches(const GemmProblem& problem, const Spec& spec);

/// Bytes, at most 16, that the channels of a tap are multiples of, which is where a line of the
/// operand may begin: in the gathered tensor, or in a filter.
uint32_t line_alignment(const ConvLayout& conv, const MatrixLayout& layout, bool is_a);

/// Fills what the kernel has to know of a convolution, once its tile is known; false if it cannot
/// address it. `part`: of its classes.
bool shape_conv(const GemmProblem& problem, uint32_t part, GemmConfig& config);

}  // namespace cleave
