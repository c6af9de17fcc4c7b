// Threads for one parallel region of the CPU backend.
//
// A team lives as long as its region (starting a thread takes about 15 us): no pool to keep alive
// across fork() or to tear down when the library is unloaded.
#pragma once

#include <cstdint>
#include <functional>

#include "cleave/core/api.h"

namespace cleave::cpu {

/// CLEAVE_CPU_THREADS, read once, or else the processors that this process may use (processors.h).
/// Throws Error if the variable is not a number from 1 to 1024.
CLEAVE_TOOLS uint32_t available_threads();

/// Calls body(thread, index) once for each index below `count`, from at most `threads` threads (the
/// caller is thread 0). Indices are claimed in increasing order, so a body may wait for bodies of
/// lower indices, however few threads there are. `body` must not throw.
void run_in_order(uint32_t threads, uint32_t count, const std::function<void(uint32_t thread, uint32_t index)>& body);

}  // namespace cleave::cpu
