#include "plan/function_config.h"

#include "cleave/epilogue.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// Whether columns 2i and 2i + 1 of a row of a matrix of D's shape lie in one aligned word. Columns of fused classes are
/// pixels' channels.
bool has_pairs(const EpilogueLayout& layout, const GemmProblem& p, bool fuses_classes) {
  const int64_t columns = fuses_classes ? p.conv.channels : p.n;
  const bool rows_begin_even = p.groups.dimension != Grouping::n && columns % 2 == 0 && layout.stride % 2 == 0;
  const bool batched = p.batch > 1 && layout.stride_batch != 0;
  return layout.shape == InputShape::matrix && layout.order == Order::row && rows_begin_even &&
         (!batched || layout.stride_batch % 2 == 0) && layout.alignment >= 2 * size_of(layout.dtype);
}

}  // namespace

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

FunctionConfig function_config(const GemmProblem& p, bool fuses_classes) {
  FunctionConfig config;
  config.function = p.epilogue.function;
  if (config.function == nullptr) return config;
  config.given = true;
  config.gated = p.epilogue.gated;
  config.inputs = uint32_t(config.function->inputs().size());
  config.outputs = uint32_t(config.function->outputs().size()) - 1;
  const auto operand = [&](const EpilogueLayout& layout) {
    return packed({layout.shape, layout.dtype, layout.order, has_pairs(layout, p, fuses_classes)});
  };
  for (uint32_t i = 0; i < config.inputs; ++i) config.packed_inputs.at(i) = operand(p.epilogue.inputs[i]);
  for (uint32_t i = 0; i < config.outputs; ++i) config.packed_outputs.at(i) = operand(p.epilogue.outputs[i]);
  return config;
}

}  // namespace cleave
