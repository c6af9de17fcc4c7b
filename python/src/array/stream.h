// CUDA streams as Python programs write them.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

namespace cleave::python {

/// None gives nullopt. Understands integers (a CUstream's value), torch.cuda.Stream,
/// cupy.cuda.Stream, Numba's and cuda.core's streams, and anything with `__cuda_stream__`. Throws
/// Error(invalid_type) for the rest.
std::optional<void*> parse_stream(nanobind::handle stream);

/// Blocks until the work of `stream` is done; does nothing for device kCpu. Releases the GIL.
void synchronize(int device, void* stream);

}  // namespace cleave::python
