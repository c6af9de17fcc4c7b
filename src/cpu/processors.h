// How many processors this process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace cleave::cpu {

/// What its affinity (taskset, a scheduler's CPU set) and its control group (a container's CPU limit)
/// leave it. At least 1.
uint32_t usable_processors();

/// Whole processors' worth of time that the control groups of this process, the innermost and those
/// around it, allow: rounded up, nothing without a limit. `root` holds proc/ and sys/.
std::optional<uint32_t> control_group_limit(const std::filesystem::path& root = "/");

}  // namespace cleave::cpu
