// Checks of what one launch is given. They cost a few comparisons, so every `run` makes them.
#pragma once

#include <span>

#include "problem/placement.h"

namespace cleave {

/// What a launch reads or writes; nothing if its place is empty.
struct NamedOperand {
  const char* name;
  Placement place;
  const void* data;
  bool written = false;
  bool wide = false;         ///< integers of 8 bytes (integers_of)
  bool elementwise = false;  ///< read: before results at its place are written, and for those alone; written: so placed
};

/// Throws invalid_argument for a missing or misaligned pointer, and for something that is written
/// sharing elements with anything else, unless it is elementwise and exactly what is read so.
void check_operands(std::span<const NamedOperand> operands);

/// The same of a product's (D may be C exactly), and throws it for factors that an int32 D does not take.
void check_arguments(const GemmProblem& problem, const GemmArguments& arguments);

/// Throws invalid_argument unless `workspace` is 16-byte aligned and holds `needed` bytes.
void check_workspace(const void* workspace, size_t size, size_t needed);

/// Throws invalid_argument if the `needed` bytes of `workspace` share one with anything that a launch
/// reads or writes.
void check_workspace_apart(const GemmProblem& problem, const GemmArguments& arguments, const void* workspace,
                           size_t needed);

}  // namespace cleave
