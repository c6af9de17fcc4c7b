// What a tile's shape says of a kernel.
#pragma once

#include "cleave/config/gemm_config.h"
#include "cleave/device.h"
#include "plan/choice/operand_layout.h"
#include "plan/choice/spec.h"

namespace cleave {

/// Fills the parts of `config` that the tile's shape decides; it has the rest. False if the kernel
/// has no such tile.
bool shape_tile(const Spec& spec, const GemmProblem& problem, uint32_t part, const OperandLayouts& operands,
                const DeviceInfo& device, GemmConfig& config);

}  // namespace cleave
