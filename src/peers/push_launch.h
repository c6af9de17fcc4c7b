// The kernel that sends what a rank has to all ranks.
#pragma once

#include <span>
#include <string>

#include "cleave/group.h"
#include "cleave/peers/push_rows_config.h"
#include "runtime/module.h"

namespace cleave {

inline constexpr const char* push_entry = "cleave_push_rows";

/// How many kernels there are, and which of them is a configuration's.
inline constexpr int kPushingKernels = 3 * 4 * 2;
int number_of(const PushRowsConfig& config);

/// What NVRTC compiles.
std::string translation_unit(const PushRowsConfig& config);

/// Pieces as large as this rank's addresses and bytes allow.
PushRowsConfig push_config(std::span<const Group::Rows> parts);

/// Without the meeting.
PushRowsParams push_params(std::span<const Group::Rows> parts, int ranks);

/// As many CTAs on each rank, since they meet: whatever its addresses, and however few rows it has.
LaunchShape push_shape(std::span<const Group::Rows> parts);

}  // namespace cleave
