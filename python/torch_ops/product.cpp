#include "product.h"

#include "operands/epilogue_values.h"

namespace cleave::torch_ops {

EpilogueTensors read_epilogue(const EpilogueFunction& function, const std::vector<Tensor>& tensors,
                              const std::vector<double>& numbers, const std::vector<int64_t>& number_places) {
  std::vector<Operand> operands;
  for (const Tensor& tensor : tensors) operands.push_back(read(tensor));
  return epilogue_tensors(function, operands, numbers, number_places);
}

/// With the library's pooled workspaces: they belong to one stream, or to one stream of one
/// capture, and their counters stay zero from launch to launch. Memory from torch's allocator would
/// have to be zeroed by a kernel of its own each time.
void run(const ProductCall& call) {
  const int device = call.problem.device;
  plan(call.problem)->run(call.arguments, current_stream(device));
}

}  // namespace cleave::torch_ops
