// Whether devices of one host can read each other's memory.
#pragma once

#include <string>

namespace cleave {

/// A CUDA device's, in hexadecimal digits: the same in every process.
std::string uuid_of(int device);

/// `own` and `theirs` are what ranks say of their place: host, device (its uuid, or "cpu") and bytes of a block, with
/// spaces between. Throws Error(unsupported) unless CUDA device `device` (or the host, kCpu) can map what rank `rank`
/// has there.
void check_access(int device, const std::string& own, const std::string& theirs, int rank);

}  // namespace cleave
