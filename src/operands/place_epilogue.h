// What all products share of an epilogue function's operands. What differs is where arrays lie in D: a placer's,
// which has
//
//   const char* leader()                      the argument whose device is everybody's
//   place(operand, name, what, layout)        a tensor, checked, as the layout of its shape and data's type
//   shape_of(shape)                           of an output: of D's shape, or of what it is reduced to
//   new_layout(shape, dtype)                  of one that is to be made
#pragma once

#include "base/refuse.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "operands/gemm_operands.h"
#include "problem/problem.h"

namespace cleave::detail {

/// What an operand is to the function.
enum class EpilogueRole { input, output };

template <class Placer>
void place_input(const Placer& placer, const ProductCall& call, const EpilogueFunction::Input& input,
                 const EpilogueTensors::Input& given, EpilogueLayout& layout, EpilogueArgument& argument) {
  layout = {.shape = input.shape};
  if (!given.tensor) {
    argument.value = given.number;
    return;
  }
  const char* const name = input.name.c_str();
  check_form(*given.tensor, name, {0, Operand::kMaxRank, kAnyType}, call.problem.device, placer.leader());
  layout.dtype = given.tensor->dtype;
  layout.alignment = uint8_t(size_of(layout.dtype));
  placer.place(*given.tensor, name, EpilogueRole::input, layout);
  argument.data = given.tensor->data;
}

template <class Placer>
void place_output(const Placer& placer, const ProductCall& call, const EpilogueFunction::Output& output,
                  const std::optional<Operand>& given, EpilogueLayout& layout, void*& data) {
  const DType dtype = output.dtype.value_or(call.problem.d.dtype);
  if (!given) {
    layout = placer.new_layout(output.shape, dtype);
    return;
  }
  const char* const name = output.name.c_str();
  const int least_rank = output.shape == InputShape::matrix ? 2 : 0;
  check_form(*given, name, {least_rank, Operand::kMaxRank, kAnyType, true}, call.problem.device, placer.leader());
  if (output.dtype && given->dtype != dtype) {
    refuse_type("{} is {}, but the epilogue function makes it {}; pass one of that type", name, to_string(given->dtype),
                to_string(dtype));
  }
  layout = {.shape = output.shape, .dtype = given->dtype, .alignment = uint8_t(size_of(given->dtype))};
  placer.place(*given, name, EpilogueRole::output, layout);
  data = given->data;
}

template <class Placer>
void place_epilogue(const EpilogueTensors& tensors, const Placer& placer, ProductCall& call) {
  const EpilogueFunction& function = *tensors.function;
  EpilogueProblem& problem = call.problem.epilogue;
  for (size_t i = 0; i < function.inputs().size(); ++i) {
    place_input(placer, call, function.inputs()[i], tensors.inputs[i], problem.inputs[i],
                call.arguments.epilogue_inputs[i]);
  }
  for (size_t i = 0; i + 1 < function.outputs().size(); ++i) {
    call.output_shapes[i] = placer.shape_of(function.outputs()[i + 1].shape);
    place_output(placer, call, function.outputs()[i + 1], tensors.outputs[i], problem.outputs[i],
                 call.arguments.epilogue_outputs[i]);
    if (!tensors.outputs[i]) call.outputs_to_make |= 1u << i;
  }
}

/// What of an input there is to be one of.
inline const char* meaning(InputShape shape) {
  switch (shape) {
    case InputShape::scalar:
      return "one value";
    case InputShape::row:
      return "one value per column of D";
    case InputShape::column:
      return "one value per row of D";
    case InputShape::matrix:
      break;
  }
  return "one value per element of D";
}

}  // namespace cleave::detail
