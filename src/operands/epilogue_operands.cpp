#include "operands/epilogue_operands.h"

#include "base/refuse.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"

namespace cleave {
namespace {

class EpilogueBuilder {
 public:
  explicit EpilogueBuilder(GemmCall& call) : call_(call), p_(call.problem) {}

  void place_input(const EpilogueFunction::Input& input, const EpilogueTensors::Input& given, EpilogueLayout& layout,
                   EpilogueArgument& argument) const {
    layout = {.shape = input.shape};
    if (!given.tensor) {
      argument.value = given.number;
      return;
    }
    const char* const name = input.name.c_str();
    const Operand& x = *given.tensor;
    check_form(x, name, {0, 3, kAnyType}, p_.device, "a");
    argument.data = x.data;
    switch (input.shape) {
      case InputShape::scalar:
        return place_vector(x, name, 1, x.ndim > 0 ? x.ndim - 1 : 0, "one value", layout);
      case InputShape::row:
        return place_vector(x, name, p_.n, x.ndim - 1, "one value per column of D", layout);
      case InputShape::column:
        return place_vector(x, name, p_.m, x.ndim == 1 ? 0 : x.ndim - 2, "one value per row of D", layout);
      case InputShape::matrix:
        return place_matrix(x, name, true, layout);
    }
  }

  void place_output(const EpilogueFunction::Output& output, const std::optional<Operand>& given, EpilogueLayout& layout,
                    void*& data) const {
    const DType dtype = output.dtype.value_or(p_.d.dtype);
    if (!given) {
      const auto [batch, rows, columns] = call_.d_shape();
      layout = {.dtype = dtype, .alignment = 16, .stride = columns, .stride_batch = call_.batched ? rows * columns : 0};
      return;
    }
    const char* const name = output.name.c_str();
    check_form(*given, name, {2, 3, kAnyType}, p_.device, "a");
    if (output.dtype && given->dtype != dtype) {
      refuse_type("{} is {}, but the epilogue function makes it {}; pass one of that type", name,
                  to_string(given->dtype), to_string(dtype));
    }
    place_matrix(*given, name, false, layout);
    data = given->data;
  }

 private:
  /// A line of `length` values along dimension `along`, the others being 1, but for a batch before it.
  void place_vector(const Operand& x, const char* name, int64_t length, int along, const char* what,
                    EpilogueLayout& layout) const {
    const bool by_batch = call_.batched && x.ndim == 3 && x.shape[0] == p_.batch;
    bool fits = x.ndim == 0 ? length == 1 : along >= 0 && x.shape[along] == length;
    for (int i = 0; i < x.ndim; ++i) fits = fits && (i == along || x.shape[i] == 1 || (i == 0 && by_batch));
    if (!fits) refuse_shape(x, name, what, layout.shape);
    layout.dtype = x.dtype;
    layout.alignment = uint8_t(size_of(x.dtype));
    layout.stride = length > 1 ? x.stride[along] : 0;
    layout.stride_batch = by_batch && p_.batch > 1 ? x.stride[0] : 0;
  }

  void place_matrix(const Operand& x, const char* name, bool may_broadcast, EpilogueLayout& layout) const {
    const auto [batch, rows, columns] = call_.d_shape();
    const int64_t entries = call_.batched ? batch : 1;
    const bool fits = x.ndim >= 2 && x.rows() == rows && x.columns() == columns &&
                      (x.batch() == entries || (may_broadcast && x.batch() == 1)) &&
                      (may_broadcast || (x.ndim == 3) == call_.batched);
    if (!fits) refuse_shape(x, name, "one value per element of D", InputShape::matrix);
    const MatrixLayout matrix = layout_of(x, name);
    const Order order = matrix.stride_col == 1 || columns <= 1 ? Order::row : Order::column;
    layout = {.dtype = x.dtype,
              .order = order,
              .alignment = uint8_t(matrix.alignment),
              .stride = order == Order::row ? matrix.stride_row : matrix.stride_col,
              .stride_batch = x.batch() == 1 ? 0 : matrix.stride_batch};
  }

  [[noreturn]] void refuse_shape(const Operand& x, const char* name, const char* what, InputShape shape) const {
    const auto [batch, rows, columns] = call_.d_shape();
    std::string expected;
    switch (shape) {
      case InputShape::scalar:
        expected = "()";
        break;
      case InputShape::row:
        expected = fmt::format("({},)", columns);
        break;
      case InputShape::column:
        expected = fmt::format("({0},) or ({0}, 1)", rows);
        break;
      case InputShape::matrix:
        expected = fmt::format("({}, {})", rows, columns);
        break;
    }
    if (call_.batched) {
      const int64_t height = shape == InputShape::column || shape == InputShape::matrix ? rows : 1;
      const int64_t width = shape == InputShape::row || shape == InputShape::matrix ? columns : 1;
      expected += fmt::format(", or ({}, {}, {}) of a batch", batch, height, width);
    }
    refuse_value("{} is {}; it must be {}: {}", name, shape_text(x), expected, what);
  }

  GemmCall& call_;
  const GemmProblem& p_;
};

}  // namespace

void place_epilogue(const EpilogueTensors& tensors, GemmCall& call) {
  const EpilogueFunction& function = *tensors.function;
  EpilogueProblem& problem = call.problem.epilogue;
  problem.function = &function;
  const EpilogueBuilder builder(call);
  for (size_t i = 0; i < function.inputs().size(); ++i) {
    builder.place_input(function.inputs()[i], tensors.inputs[i], problem.inputs[i], call.arguments.epilogue_inputs[i]);
  }
  for (size_t i = 0; i + 1 < function.outputs().size(); ++i) {
    builder.place_output(function.outputs()[i + 1], tensors.outputs[i], problem.outputs[i],
                         call.arguments.epilogue_outputs[i]);
    if (!tensors.outputs[i]) call.outputs_to_make |= 1u << i;
  }
}

}  // namespace cleave
