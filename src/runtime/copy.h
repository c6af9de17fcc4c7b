// Copies in the order of a stream.
#pragma once

#include <cstddef>

namespace cleave {

/// Enqueues one on `stream`, between any two places that `device` sees; on the CPU it is done at once. Throws
/// Error(driver).
void enqueue_copy(int device, void* to, const void* from, size_t bytes, void* stream);

}  // namespace cleave
