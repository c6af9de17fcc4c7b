// The operands of epilogue functions of matrices.

#include "operands/epilogue_operands.h"

#include <algorithm>

#include "cleave/core/reduction.h"
#include "cleave/epilogue.h"
#include "operands/place_epilogue.h"

namespace cleave {
namespace {

using detail::EpilogueRole;

class MatrixPlacer {
 public:
  explicit MatrixPlacer(const GemmCall& call) : call_(call), p_(call.problem) {}

  static const char* leader() { return "a"; }

  void place(const Operand& x, const char* name, EpilogueRole role, EpilogueLayout& layout) const {
    if (role == EpilogueRole::output && !is_shape(x, shape_of(layout.shape))) refuse_output(x, name, layout.shape);
    switch (layout.shape) {
      case InputShape::scalar:
        return place_vector(x, name, 1, layout);
      case InputShape::row:
        return place_vector(x, name, p_.n, layout);
      case InputShape::column:
        return place_column(x, name, layout);
      case InputShape::matrix:
        return place_matrix(x, name, role == EpilogueRole::output, layout);
    }
  }

  /// What is reduced has the shape of an input of its kind, with values of its own for each of the batch, or for each
  /// group if it is reduced over groups.
  OutputShape shape_of(InputShape shape) const {
    const auto [batch, rows, columns] = call_.d_shape();
    const int64_t height = shape == InputShape::column || shape == InputShape::matrix ? rows : 1;
    const int64_t width = shape == InputShape::row || shape == InputShape::matrix ? columns : 1;
    if (call_.batched) return {{batch, height, width}, 3};
    if (shape == InputShape::matrix) return {{height, width}, 2};
    const bool scalar = shape == InputShape::scalar;
    if (is_over_groups(p_.groups.dimension, shape)) return {{p_.batch, height * width}, scalar ? 1 : 2};
    return {{height * width}, scalar ? 0 : 1};
  }

  EpilogueLayout new_layout(InputShape shape, DType dtype) const {
    const auto [batch, rows, columns] = call_.d_shape();
    const int64_t height = shape == InputShape::column ? rows : 1, width = shape == InputShape::row ? columns : 1;
    const bool entries = (call_.batched && !call_.stacks_rows()) || is_over_groups(p_.groups.dimension, shape);
    if (shape == InputShape::matrix)
      return {.dtype = dtype, .alignment = 16, .stride = columns, .stride_batch = entries ? rows * columns : 0};
    const int64_t length = height * width;
    return {.shape = shape,
            .dtype = dtype,
            .alignment = uint8_t(size_of(dtype)),
            .stride = (shape == InputShape::column ? p_.m : length) > 1 ? 1 : 0,
            .stride_batch = entries && p_.batch > 1 ? length : 0};
  }

 private:
  bool grouped() const { return p_.groups.dimension != Grouping::none; }

  /// Whether each of the batch, or of the groups, may have values of its own: along what they are not cut from.
  bool may_vary(InputShape shape) const {
    if (shape == InputShape::row && p_.groups.dimension == Grouping::n) return false;
    if (shape == InputShape::column && p_.groups.dimension == Grouping::m) return false;
    return call_.batched || grouped();
  }

  /// Where the groups' rows are matrices of their own, a column has them one behind the other.
  void place_column(const Operand& x, const char* name, EpilogueLayout& layout) const {
    if (!call_.stacks_rows()) return place_vector(x, name, p_.m, layout);
    const auto [batch, rows, columns] = call_.d_shape();
    if (x.ndim != 3 || x.shape[0] != batch || x.shape[1] != rows || x.shape[2] != 1)
      refuse_shape(x, name, layout.shape);
    place_vector(stacked(x, name), name, p_.m, layout);
  }

  /// A line of `length` values, all other dimensions being 1, or one such line for each of the batch or the groups.
  void place_vector(const Operand& x, const char* name, int64_t length, EpilogueLayout& layout) const {
    int along = layout.shape == InputShape::column && x.ndim > 1 ? x.ndim - 2 : x.ndim - 1;
    const auto is_line = [&](int first) {
      bool fits = along < first ? length == 1 : x.shape[along] == length;
      for (int i = first; i < x.ndim; ++i) fits = fits && (i == along || x.shape[i] == 1);
      return fits;
    };
    bool varies = false;
    if (x.ndim > 3 || !is_line(0)) {
      varies =
          may_vary(layout.shape) && x.ndim > 0 && x.shape[0] == p_.batch && (grouped() ? x.ndim <= 3 : x.ndim == 3);
      if (x.ndim < 3) along = x.ndim - 1;  // groups: [groups, length], or one value for each
      if (!varies || !is_line(1)) refuse_shape(x, name, layout.shape);
    }
    layout.stride = length > 1 ? x.stride[along] : 0;
    layout.stride_batch = varies && p_.batch > 1 ? x.stride[0] : 0;
  }

  void place_matrix(const Operand& given, const char* name, bool written, EpilogueLayout& layout) const {
    const auto [batch, rows, columns] = call_.d_shape();
    const int64_t entries = call_.batched ? batch : 1;
    const bool may_broadcast = !written && !call_.stacks_rows();
    const bool fits = (given.ndim == 2 || given.ndim == 3) && given.rows() == rows && given.columns() == columns &&
                      (given.batch() == entries || (may_broadcast && given.batch() == 1)) &&
                      (may_broadcast || (given.ndim == 3) == call_.batched);
    if (!fits) refuse_shape(given, name, InputShape::matrix);
    const Operand x = call_.stacks_rows() ? stacked(given, name, written) : given;
    const MatrixLayout matrix = layout_of(x, name, written);
    layout.order = matrix.stride_col == 1 || columns <= 1 ? Order::row : Order::column;
    layout.alignment = uint8_t(matrix.alignment);
    layout.stride = layout.order == Order::row ? matrix.stride_row : matrix.stride_col;
    layout.stride_batch = x.batch() == 1 ? 0 : matrix.stride_batch;
  }

  static bool is_shape(const Operand& x, const OutputShape& shape) {
    return std::ranges::equal(std::span(x.shape, size_t(x.ndim)), shape.span());
  }

  [[noreturn]] void refuse_output(const Operand& x, const char* name, InputShape shape) const {
    if (shape == InputShape::matrix) refuse_shape(x, name, shape);
    const OutputShape expected = shape_of(shape);
    Operand wanted{.ndim = expected.ndim};
    std::ranges::copy(expected.span(), wanted.shape);
    refuse_value("{} is {}; it must be {}: {}", name, shape_text(x), shape_text(wanted), detail::meaning(shape));
  }

  [[noreturn]] void refuse_shape(const Operand& x, const char* name, InputShape shape) const {
    const auto [batch, rows, columns] = call_.d_shape();
    const bool is_column = shape == InputShape::column, is_matrix = shape == InputShape::matrix;
    const int64_t height = is_column || is_matrix ? rows : 1;
    const int64_t width = shape == InputShape::row || is_matrix ? columns : 1;
    const std::string entry = fmt::format("({}, {}, {})", batch, height, width);
    std::string expected = shape == InputShape::scalar ? "()"
                           : is_matrix                 ? fmt::format("({}, {})", height, width)
                           : is_column                 ? fmt::format("({0},) or ({0}, 1)", height)
                                                       : fmt::format("({},)", width);
    if (call_.stacks_rows() && (is_column || is_matrix)) {
      expected = entry;
    } else if (grouped() && !is_matrix && may_vary(shape)) {
      const int64_t length = is_column ? height : width;
      expected += shape == InputShape::scalar                       ? fmt::format(", or ({},)", batch)
                  : is_column && p_.groups.dimension == Grouping::k ? ", or " + entry
                                                                    : fmt::format(", or ({}, {})", batch, length);
      expected += " of the groups";
    } else if (call_.batched) {
      expected += fmt::format(", or {} of a batch", entry);
    }
    refuse_value("{} is {}; it must be {}: {}", name, shape_text(x), expected, detail::meaning(shape));
  }

  const GemmCall& call_;
  const GemmProblem& p_;
};

}  // namespace

EpilogueProblem epilogue_for(Activation activation, const EpilogueFunction* function) {
  if (function == nullptr) return epilogue_of(activation);
  if (activation != Activation::none) {
    refuse_value(
        "activation is {}, but an epilogue function is given, which takes its place; leave activation out and apply it "
        "in the function",
        to_string(activation));
  }
  EpilogueProblem problem;
  problem.function = function;
  problem.gates = function->gates();
  return problem;
}

std::optional<DType> asked_type(std::optional<DType> option, const EpilogueFunction* function) {
  return option || function == nullptr ? option : function->outputs()[0].dtype;
}

void check_type_of_out(const Operand& out, std::optional<DType> asked) {
  if (!asked || *asked == out.dtype) return;
  refuse_type("out is {}, but out_dtype is {}; omit one of them", to_string(out.dtype), to_string(*asked));
}

void place_epilogue(const EpilogueTensors& tensors, GemmCall& call) {
  detail::place_epilogue(tensors, MatrixPlacer(call), call);
}

}  // namespace cleave
