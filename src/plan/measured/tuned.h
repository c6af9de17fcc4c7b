// Measured winners: a table shipped with the library for known GPUs, overlaid by the user's own
// (`cleave tune`).
//
// A line of a table:  GPU name | problem | spec      e.g.
//   NVIDIA H100 80GB HBM3 | 128x128x16384x1 tn float16 float16 | sm90 64x64 cluster 16
// The problem is whole (problem_text.h). One that was not measured itself does what was best without what is
// done to its sums: C, a bias, an activation but swiglu, zero points, and how they are stored. So does one of the
// other 16-bit float, and one on another chip of a measured kind.
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
#include "plan/choice/spec.h"

namespace cleave {

/// The winner for `problem` on `device`, if its size was measured: only for automatic mode, slices
/// and kernel.
std::optional<Spec> tuned(const GemmProblem& problem, const DeviceInfo& device);

/// Whether `problem` itself, in nothing different, was measured on a device of this name.
CLEAVE_TOOLS bool is_tuned(const GemmProblem& problem, const DeviceInfo& device);

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

struct MergedTable {
  size_t added = 0, replaced = 0, kept = 0;  ///< lines: of new problems, and of known ones
  std::string problem;                       ///< why some of the text is not believed; empty if all is
};

/// Adds the lines of another user's table to this user's, and to this process. `replaces`: also those of
/// problems that this table has. Throws Error(invalid_argument) where the table cannot be written.
CLEAVE_TOOLS MergedTable merge_tuned(const std::string& text, bool replaces);

/// Removes the user's table from disk, not from this process. Whether there was one.
CLEAVE_TOOLS bool clear_tuned();

}  // namespace cleave
