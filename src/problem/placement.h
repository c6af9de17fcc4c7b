// Where the tensors of a problem lie in memory.
#pragma once

#include "launch/product.h"

namespace cleave {

/// A batch of matrices in memory. A vector is a matrix of one row.
struct Placement {
  MatrixLayout layout;
  int64_t rows, columns, batch;

  bool empty() const { return rows == 0 || columns == 0 || batch == 0; }
};

/// `count` contiguous elements, aligned as their type.
inline Placement vector_of(DType type, int64_t count) {
  return {{.dtype = type, .stride_row = count, .alignment = size_of(type)}, 1, count, 1};
}

/// `count` contiguous integers, int64 or int32, aligned as such. No DType is int64: of one, two int32.
inline Placement integers_of(int64_t count, bool wide) {
  Placement place = vector_of(DType::i32, wide ? 2 * count : count);
  if (wide) place.layout.alignment = sizeof(int64_t);
  return place;
}

/// The largest power of two up to 16 that divides every number whose bits are in `bits`.
inline uint32_t common_alignment(uint64_t bits) {
  bits |= 16;
  return uint32_t(bits & -bits);
}

/// The widest access, in bytes up to 16, that all rows are aligned to.
uint32_t widest_access(const Placement& matrix);

/// False if the matrices of a batch span 2^63 bytes or more. No stride may be negative.
bool addressable(const Placement& matrix);

// What a problem reads and writes. What takes no part in it is empty. A convolution, which
// gathers an operand from all over a tensor, has that tensor: x and y are [pixels, channels], w is
// [filters, taps x channels], or the transpose of that as B of fprop and y as A of wgrad.
Placement a_of(const GemmProblem& problem);
Placement b_of(const GemmProblem& problem);
Placement c_of(const GemmProblem& problem);
Placement d_of(const GemmProblem& problem);
Placement bias_of(const GemmProblem& problem);
Placement scale_a_of(const GemmProblem& problem);       ///< [batch, scales of rows, scales along K]
Placement scale_b_of(const GemmProblem& problem);       ///< [batch, scales of columns, scales along K]
Placement weight_scale_of(const GemmProblem& problem);  ///< [batch, groups of K, rows of the weight]
Placement weight_zero_of(const GemmProblem& problem);
Placement zero_a_of(const GemmProblem& problem);  ///< all ones need no memory, though
Placement zero_b_of(const GemmProblem& problem);
Placement scale_d_of(const GemmProblem& problem);
Placement amax_of(const GemmProblem& problem);
Placement scale_out_of(const GemmProblem& problem);  ///< [batch, rows of D, blocks of 128 columns]
Placement epilogue_input_of(const GemmProblem& problem, uint32_t input);
Placement epilogue_output_of(const GemmProblem& problem, uint32_t output);  ///< beside D
Placement gather_of(const GemmProblem& problem);
Placement group_offsets_of(const GemmProblem& problem);  ///< in words of 4 bytes
Placement group_sizes_of(const GemmProblem& problem);    ///< in words of 4 bytes

}  // namespace cleave
