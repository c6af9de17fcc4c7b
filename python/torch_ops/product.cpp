#include "product.h"

namespace cleave::torch_ops {

/// With the library's pooled workspaces: they belong to one stream, or to one stream of one
/// capture, and their counters stay zero from launch to launch. Memory from torch's allocator would
/// have to be zeroed by a kernel of its own each time.
void run(const ProductCall& call) {
  const int device = call.problem.device;
  plan(call.problem)->run(call.arguments, current_stream(device));
}

}  // namespace cleave::torch_ops
