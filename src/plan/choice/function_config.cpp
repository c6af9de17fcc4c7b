#include "plan/choice/function_config.h"

#include "cleave/epilogue.h"
#include "launch/function_operands.h"
#include "problem/problem.h"

namespace cleave {

bool c_has_pairs(const GemmProblem& p, bool fuses_classes) {
  const Order order = output_order(p).value_or(Order::row);
  const EpilogueLayout c{.shape = InputShape::matrix,
                         .dtype = p.c.dtype,
                         .order = order,
                         .alignment = uint8_t(p.c.alignment),
                         .stride = order == Order::row ? p.c.stride_row : p.c.stride_col,
                         .stride_batch = p.c.stride_batch};
  return p.has_c && has_pairs(c, p, fuses_classes);
}

bool c_has_words(const GemmProblem& p) {
  const bool of_floats = p.has_c && p.c.dtype == DType::f32 && p.d.dtype == DType::f32;
  // With more of an epilogue than gradients have, registers do not suffice for what has come.
  const bool plain = p.epilogue.function == nullptr && p.bias == Bias::none && !p.has_amax && !p.has_scale_d;
  const bool rows = output_order(p).value_or(Order::row) == Order::row && p.n % 4 == 0 && p.c.stride_row % 4 == 0 &&
                    p.c.stride_batch % 4 == 0 && p.c.alignment >= 16;
  return p.groups.dimension == Grouping::k && of_floats && plain && rows;
}

FunctionConfig function_config(const GemmProblem& p, bool fuses_classes) {
  FunctionConfig config;
  config.function = p.epilogue.function;
  if (config.function == nullptr) return config;
  config.given = true;
  config.gated = is_gated(p);
  config.inputs = uint32_t(config.function->inputs().size());
  config.outputs = uint32_t(config.function->outputs().size()) - 1;
  const auto operand = [&](const EpilogueLayout& layout, Reduction reduction) {
    return packed({layout.shape, layout.dtype, layout.order, has_pairs(layout, p, fuses_classes), reduction});
  };
  for (uint32_t i = 0; i < config.inputs; ++i)
    config.packed_inputs.at(i) = operand(p.epilogue.inputs[i], Reduction::none);
  for (uint32_t i = 0; i < config.outputs; ++i)
    config.packed_outputs.at(i) = operand(p.epilogue.outputs[i], reduction_within(p, i));
  return config;
}

}  // namespace cleave
