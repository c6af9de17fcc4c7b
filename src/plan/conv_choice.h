// What a convolution adds to a choice: how its operands lie, and its classes' part of the schedule.
#pragma once

#include <optional>
#include <vector>

#include "cleave/schedule/class_columns.h"
#include "plan/choice.h"

namespace cleave {

/// The problem as `spec`'s kernel sees it, or nothing if it cannot serve it. The Hopper kernel makes
/// wgrad a batch of products, one for each tap; classes side by side make one product of a dgrad.
std::optional<GemmProblem> conv_view(const GemmProblem& problem, const Spec& spec);

/// Bytes that the channels of a tap, of the operand that is gathered and of the filters, are
/// multiples of, at most 16.
uint32_t channel_alignment(const GemmProblem& problem);

/// Fills what the kernel has to know of a convolution, once its tile is known; false if the copy
/// engine's im2col mode cannot address it.
bool shape_conv(const GemmProblem& problem, GemmConfig& config);

/// The classes with their tiles and k blocks; one, if they lie side by side (in `columns`, which may be
/// null). `problem`: as the kernel sees it.
std::vector<ConvClass> dealt_classes(const GemmProblem& problem, const GemmConfig& config,
                                     ClassColumns* columns = nullptr);

/// K blocks of a tap, or elements (portable); of wgrad, columns.
uint32_t per_tap(const GemmProblem& problem, const GemmConfig& config);

}  // namespace cleave
