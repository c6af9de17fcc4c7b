// Whether a Hopper consumer, or a thread of the portable kernel, keeps everything in registers. Where it does not, the
// compiler said so: CI compiles every configuration that passes these rules, and fails on a spill. A rule is a subject
// of its own: what there are no registers for, beside what.
#pragma once

#include "cleave/config/gemm_config.h"

namespace cleave {

/// Whether a function needs as many registers as C does: for what it reads of matrices, keeps of lines through the
/// mainloop, or makes beside D.
bool crowds(const GemmConfig& config);

/// As far as operands, tile, schedule and epilogue tell: the place of D's rows and its stores come later.
bool registers_suffice(const GemmConfig& config);

/// The same of the portable kernel, where columns of D share a scale that is found.
bool portable_registers_suffice(const GemmConfig& config);

/// Whether there are registers for a slice beside the sum of those before it, and who takes the next one.
bool registers_suffice_in_turn(const GemmConfig& config);

/// Once it is settled where D's rows lie, and who stores them.
bool registers_suffice_to_store(const GemmConfig& config);

}  // namespace cleave
