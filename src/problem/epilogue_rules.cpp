// The rules of epilogue functions.

#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "problem/overlap.h"
#include "problem/problem.h"
#include "problem/rules.h"

namespace cleave {
namespace {

void check_operand(const char* name, const EpilogueLayout& layout, const Placement& place, bool written,
                   Messages& out) {
  if (layout.alignment == 0 || layout.alignment > 16 || (layout.alignment & (layout.alignment - 1)) != 0) {
    out.add("{}.alignment is {}; it must be a power of two up to 16", name, layout.alignment);
  }
  if (layout.stride < 0 || layout.stride_batch < 0) {
    out.add("{}.stride is {} and {}.stride_batch is {}; strides must not be negative. Pass a contiguous copy", name,
            layout.stride, name, layout.stride_batch);
  } else if (check_addressable(name, place, "row, column, batch", out) && written && overlaps_itself(place)) {
    out.add("{} overlaps itself: its lines start {} apart. Pass a contiguous {}", name, layout.stride, name);
  }
}

void check_output(const GemmProblem& p, uint32_t i, Messages& out) {
  const EpilogueFunction::Output& output = p.epilogue.function->outputs()[i + 1];
  const char* const name = output.name.c_str();
  const EpilogueLayout& layout = p.epilogue.outputs[i];
  if (layout.shape != output.shape) {
    out.add("epilogue output {} has the layout of another shape than the function's; set outputs[{}].shape to it", name,
            i);
    return;
  }
  if (output.reduction != Reduction::none) {
    if (layout.dtype != DType::f32)
      out.add("{} is {}, but reductions are float32; pass that", name, to_string(layout.dtype));
  }
  if (layout.dtype == DType::i32) {
    out.add("{} is int32, but an epilogue function makes floats; pass another type", name);
  }
  check_operand(name, layout, epilogue_output_of(p, i), true, out);
}

}  // namespace

void check_epilogue(const GemmProblem& p, Messages& out) {
  const EpilogueFunction* const function = p.epilogue.function;
  if (function == nullptr) return;
  if (p.epilogue.gates != function->gates()) {
    out.add("epilogue.gates is {}, but the function's is {}; set it to that", to_string(p.epilogue.gates),
            to_string(function->gates()));
  }
  for (uint32_t i = 0; i < function->inputs().size(); ++i) {
    const auto& input = function->inputs()[i];
    const EpilogueLayout& layout = p.epilogue.inputs[i];
    if (layout.shape != input.shape) {
      out.add("epilogue input {} has the layout of another shape than the function's; set inputs[{}].shape to it",
              input.name, i);
    } else {
      check_operand(input.name.c_str(), layout, epilogue_input_of(p, i), false, out);
    }
  }
  for (uint32_t i = 0; i + 1 < function->outputs().size(); ++i) check_output(p, i, out);
}

}  // namespace cleave
