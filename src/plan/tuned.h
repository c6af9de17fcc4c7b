// Measured winners: a table shipped with the library for known GPUs, overlaid by the user's own
// (`cleave tune`).
//
// A line of a table:  GPU name | problem | spec      e.g.
//   NVIDIA H100 80GB HBM3 | 128x128x16384x1 tn float16 float16 | sm90 64x64 cluster 16
// Only what changes the winner is in the problem's key: activations but swiglu, and alignment
// beyond 16 bytes, are not. A product with a C or a bias that was not measured itself does what was
// best without them.
//
// The user's table is tuned.txt beside the kernel cache. It is believed as little as it must be: a
// file of another version, or that others can write, is not read, and of its lines only those whose
// spec the catalogue lists.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "cleave/device.h"
#include "cleave/gemm.h"
#include "plan/spec.h"

namespace cleave {

/// The winner for `problem` on `device`, if its size was measured: only for automatic mode, slices
/// and kernel.
std::optional<Spec> tuned(const GemmProblem& problem, const DeviceInfo& device);

/// Remembers a winner in the user's table and in this process. Returns the table's path. Throws
/// Error(invalid_argument) where the table cannot be written, or the catalogue does not list `spec`.
std::string store_tuned(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec);

struct TunedTable {
  std::string path;     ///< empty where there is no cache directory
  size_t entries = 0;   ///< that are believed
  std::string problem;  ///< why it is not read, or not all of it; empty if it is
};

/// What is on disk.
CLEAVE_TOOLS TunedTable tuned_table();

/// Removes the user's table from disk, not from this process. Whether there was one.
CLEAVE_TOOLS bool clear_tuned();

}  // namespace cleave
