// Epilogue functions: what a product's sums become by a function, with inputs of its own: an activation, or one of the
// user's. It runs once per element of D, on the sum of all slices.
//
//   scalars   loaded with the rows' values, before the mainloop
//   rows      one value a column of D: with its scale and bias (broadcast.h)
//   columns   one value a row of D: the same; where a tile's row is several of D (fused classes), as matrices
//   matrices  one value an element: as C is (element_inputs.h)
#pragma once

#include "cleave/core/elementwise.h"
#include "cleave/epilogue/epilogue.h"

namespace cleave {

namespace detail {

/// An array that may have no elements.
template <class T, uint32_t N>
struct ArrayOf {
  T at[N];
  CLEAVE_DEVICE T& operator[](uint32_t i) { return at[i]; }
  CLEAVE_DEVICE const T& operator[](uint32_t i) const { return at[i]; }
};
template <class T>
struct ArrayOf<T, 0> {};

}  // namespace detail

/// A value for each input of the function.
template <GemmConfig C>
using FunctionValues = detail::ArrayOf<float, C.epilogue.function.inputs>;

/// What one row of D (or one column) brings to each of its values.
template <GemmConfig C>
struct LineValues : BroadcastValues {
  FunctionValues<C> inputs;  // those of this shape
};

/// The inputs of one shape that belong to line `index`, from input I; `values` of other shapes stay.
template <GemmConfig C, InputShape Shape, uint32_t I = 0>
CLEAVE_DEVICE void load_line_inputs(const GemmParams& p, uint32_t index, uint32_t batch, FunctionValues<C>& values) {
  if constexpr (I < C.epilogue.function.inputs) {
    constexpr FunctionOperandConfig kInput = C.epilogue.function.input(I);
    if constexpr (kInput.shape == Shape) {
      const FunctionOperand& input = p.epilogue.inputs[I];
      const bool given = Shape != InputShape::scalar || input.data != nullptr;
      values[I] = given ? load_element(kInput.dtype, input.data, batch * input.batch_stride + index * input.stride)
                        : input.value;
    }
    load_line_inputs<C, Shape, I + 1>(p, index, batch, values);
  }
}

/// The address of an element of an operand that is a matrix, or a column.
CLEAVE_DEVICE char* matrix_element(FunctionOperandConfig config, const FunctionOperand& operand,
                                   const ElementCoord& at) {
  const uint32_t col = config.shape == InputShape::column ? 0 : at.col;
  return static_cast<char*>(operand.data) +
         (at.batch * operand.batch_stride + epilogue_offset(config.order, operand.stride, at.row, col)) *
             int64_t(size_of(config.dtype));
}

}  // namespace cleave
