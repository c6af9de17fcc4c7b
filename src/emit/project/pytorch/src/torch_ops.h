// The operator's functions, as PyTorch's stable ABI calls them; torch_library.cpp registers them.
#pragma once

#include <torch/csrc/stable/library.h>

namespace emitted::operation {

/// The arguments of the operator, and of its `out` form, as PyTorch's schemas have them.
extern const char kSchema[];
extern const char kOutSchema[];

void run(StableIValue* stack, uint64_t count, uint64_t outputs);
void run_out(StableIValue* stack, uint64_t count, uint64_t outputs);

/// Refuses operands on the CPU, with `out` or without.
void refuse_cpu(StableIValue* stack, uint64_t count, uint64_t outputs);

}  // namespace emitted::operation
