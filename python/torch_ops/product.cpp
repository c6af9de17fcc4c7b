#include "product.h"

#include "cleave/core/math.h"
#include "operands/epilogue_values.h"
#include "operands/roles.h"

namespace cleave::torch_ops {

EpilogueTensors read_epilogue(const EpilogueFunction& function, const std::vector<Tensor>& tensors,
                              const std::vector<double>& numbers, const std::vector<int64_t>& number_places,
                              bool has_gradients) {
  std::vector<Operand> operands;
  for (const Tensor& tensor : tensors) operands.push_back(read(tensor));
  EpilogueTensors epilogue = epilogue_tensors(function, operands, numbers, number_places);
  if (has_gradients) return epilogue;
  auto tensor = tensors.begin();
  for (size_t i = 0; i < epilogue.inputs.size(); ++i)
    if (epilogue.inputs[i].tensor) read_untracked(*tensor++, function.inputs()[i].name.c_str());
  return epilogue;
}

Tensor make_scales(GemmCall& product) {
  const GemmProblem& p = product.problem;
  const auto shape = product.scale_out_shape();
  const ScaleLayout& at = p.scale_out;
  // As torch has it, however many entries there are; the problem's is 0 where there are not two.
  const int64_t rows = max_of<int64_t>(shape[1], 1), blocks = max_of<int64_t>(shape[2], 1);
  const int64_t strides[] = {product.stacks_rows() ? rows * at.stride_row : rows * blocks, at.stride_row, at.stride_k};
  const size_t first = product.batched ? 0 : 1;
  Tensor scales = empty_strided(std::span(shape).subspan(first), strides + first, DType::f32, p.device);
  product.arguments.scale_out = static_cast<float*>(scales.data_ptr());
  return scales;
}

/// Uses the library's pooled workspaces, which belong to one stream, or to one stream of one capture, and whose
/// counters stay zero from launch to launch. Memory from torch's allocator would have to be zeroed by another kernel
/// each time.
void run(const ProductCall& call) {
  const int device = call.problem.device;
  with_roles(call.problem.conv.kind, [&] { plan(call.problem)->run(call.arguments, current_stream(device)); });
}

}  // namespace cleave::torch_ops
