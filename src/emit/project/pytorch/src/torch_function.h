// What the operator is given for the operation's epilogue function, where it has one.
#pragma once

#include <array>
#include <optional>

#include "torch_tensors.h"
#include "view.h"

namespace emitted::operation {

inline constexpr uint32_t kFunctionInputs = kKernels[0].config.epilogue.function.inputs;
inline constexpr uint32_t kFunctionOutputs = kKernels[0].config.epilogue.function.outputs;

/// The function's inputs, in its order: tensors, or numbers where the operation was planned with numbers.
struct FunctionInputs {
  std::array<std::optional<Tensor>, kFunctionInputs> tensors;
  std::array<double, kFunctionInputs> numbers{};

  FunctionInputs() = default;
  explicit FunctionInputs(StableIValue*& next) {
    for (uint32_t i = 0; i < kFunctionInputs; ++i) {
      if (cleave::is_number(kOperation.epilogue.inputs[i]))
        numbers[i] = take<double>(next);
      else
        tensors[i] = take<Tensor>(next);
    }
  }
};

/// What messages call an output beside D.
inline const char* output_name(uint32_t output) {
  const auto name = [&](const auto* function) -> const char* {
    if constexpr (kFunctionOutputs > 0) return function->outputs[output];
    return "";
  };
  return name(kOperation.epilogue.function);
}

/// Fills a call with the inputs: `read(tensor, name, layout)` says in the layout where one lies, and returns its data.
template <class Read>
void read_function(const FunctionInputs& inputs, Given& given, const Read& read) {
  const auto all = [&](const auto* function) {
    if constexpr (kFunctionInputs > 0) {
      for (uint32_t i = 0; i < kFunctionInputs; ++i) {
        cleave::EpilogueArgument& argument = given.arguments.epilogue_inputs[i];
        if (const auto& tensor = inputs.tensors[i])
          argument.data = read(*tensor, function->inputs[i], given.problem.epilogue.inputs[i]);
        else
          argument.value = float(inputs.numbers[i]);
      }
    }
  };
  all(kOperation.epilogue.function);
}

}  // namespace emitted::operation
