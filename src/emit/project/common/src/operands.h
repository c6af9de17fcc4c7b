// The operands of the operation's epilogue function, where it has one: its inputs, and its outputs beside D.
#pragma once

#include "call.h"
#include "refuse.h"

namespace emitted::operation {

struct FunctionOperand {
  const char *list, *name;  // "inputs." and what the function calls it
  const cleave::EpilogueLayout& layout;
  cleave::FunctionOperandConfig config;  // as the kernel reads it
  const void* data;
  bool is_written;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    emitted::operation::refuse(list, name, parts...);
  }

  /// What D is reduced to: a value for each line.
  void check_apart() const {
    const bool is_line = layout.shape == cleave::InputShape::row || layout.shape == cleave::InputShape::column;
    if (is_written && is_line && layout.stride == 0) refuse(".stride is 0; it must be at least 1");
  }
};

/// Calls `visit` with each operand of the kernel; `problem` is ours, or as the kernel reads it.
template <class Visit>
void visit_operands(const cleave::GemmProblem& problem, const cleave::GemmArguments& arguments,
                    const cleave::GemmConfig& config, const Visit& visit) {
  const auto all = [&](const auto* function) {
    if constexpr (kOperation.epilogue.function != nullptr) {
      const cleave::FunctionConfig& kernels = config.epilogue.function;
      for (uint32_t i = 0; i < kernels.inputs; ++i)
        visit(FunctionOperand{"inputs.", function->inputs[i], problem.epilogue.inputs[i], kernels.input(i),
                              arguments.epilogue_inputs[i].data, false});
      for (uint32_t i = 0; i < kernels.outputs; ++i)
        visit(FunctionOperand{"outputs.", function->outputs[i], problem.epilogue.outputs[i], kernels.output(i),
                              arguments.epilogue_outputs[i], true});
    }
  };
  all(kOperation.epilogue.function);
}

/// Whether pairs of neighbours are where the kernel loads or stores them at once. `problem`: as the kernel reads it.
inline void check_pairs(const cleave::GemmProblem& problem, const cleave::GemmConfig& config) {
  visit_operands(problem, {}, config, [&](const FunctionOperand& x) {
    if (!x.config.pairs || cleave::has_pairs(x.layout, problem, config.conv.fuses_classes)) return;
    x.refuse(" has strides of ", x.layout.stride, " and ", x.layout.stride_batch,
             "; this kernel takes two neighbours of a row at once: those, and the columns, must be even. Plan with "
             "such sizes for another kernel");
  });
}

inline void check_operand_addresses(const cleave::GemmProblem& problem, const cleave::GemmArguments& arguments,
                                    const cleave::GemmConfig& config) {
  visit_operands(problem, arguments, config, [](const FunctionOperand& x) {
    const uint32_t alignment = cleave::size_of(x.layout.dtype) * (x.config.pairs ? 2 : 1);
    if (reinterpret_cast<uintptr_t>(x.data) % alignment != 0)
      x.refuse(".data is at ", x.data, "; it must be at a multiple of ", alignment, " bytes");
  });
}

inline void check_operands_present(const cleave::GemmProblem& problem, const cleave::GemmArguments& arguments,
                                   const cleave::GemmConfig& config) {
  visit_operands(problem, arguments, config, [](const FunctionOperand& x) {
    if (x.data == nullptr && (x.is_written || x.layout.shape != cleave::InputShape::scalar))
      x.refuse(".data is a null pointer; pass the data");
  });
}

}  // namespace emitted::operation
