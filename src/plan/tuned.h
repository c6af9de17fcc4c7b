// Measured winners: a table shipped with the library for known GPUs, overlaid by the user's own
// (`cleave tune`).
//
// A line of a table:  GPU name | problem | spec      e.g.
//   NVIDIA H100 80GB HBM3 | 128x128x16384x1 tn float16 float16 | sm90 64x64 cluster 16
// Only what changes the winner is in the problem's key; activation, bias and alignment beyond 16
// bytes are not.
#pragma once

#include <optional>
#include <string>

#include "cleave/device.h"
#include "cleave/gemm.h"
#include "plan/spec.h"

namespace cleave {

/// The winner for `problem` on `device`, if its size was measured: only for automatic mode, slices
/// and kernel.
std::optional<Spec> tuned(const GemmProblem& problem, const DeviceInfo& device);

/// Remembers a winner in the user's table (beside the kernel cache) and in this process. Returns
/// the table's path.
std::string store_tuned(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

}  // namespace cleave
