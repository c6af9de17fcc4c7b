// What a tile's shape says of a kernel.
#pragma once

#include "cleave/config/gemm_config.h"
#include "cleave/device.h"
#include "plan/choice/operand_layout.h"
#include "plan/choice/spec.h"

namespace cleave {

/// From so many times 128 bytes of K of a group on average, sums are better added by TMA than to a C that was fetched:
/// on an H200 from 450 tokens of 16 bits, or 850 of 8 bits (docs/notes/2026-11-grouped-gemm.md).
inline constexpr int64_t kDeepBlocks = 7;

/// Fills the parts of `config` that the tile's shape decides; it has the rest. False if the kernel
/// has no such tile.
bool shape_tile(const Spec& spec, const GemmProblem& problem, uint32_t part, const OperandLayouts& operands,
                const DeviceInfo& device, GemmConfig& config);

}  // namespace cleave
