#include "plan/choice/operand_layout.h"

#include <algorithm>

#include "cleave/schedule/groups.h"
#include "plan/choice/conv_choice.h"
#include "problem/placement.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// The dimension of A ([m, k]) or B^T ([n, k]) that is contiguous. Both are if the other has one
/// element.
Major major_of(int64_t stride_k, int64_t size_k, int64_t stride_other, int64_t size_other) {
  if (size_other == 1 && stride_k == 1) return Major::k;
  if (size_k == 1 && stride_other == 1) return Major::mn;
  return stride_k == 1 || size_k == 1 ? Major::k : Major::mn;
}

/// Bytes, at least an element's, that the addresses of an operand's lines are multiples of.
uint32_t matrix_alignment(uint32_t pointer, DType type, int64_t stride, int64_t batch_stride) {
  const uint64_t size = size_of(type);
  return std::max(common_alignment(pointer | uint64_t(stride) * size | uint64_t(batch_stride) * size), uint32_t(size));
}

/// Bytes that the addresses at which groups begin are multiples of, along a contiguous dimension.
uint32_t group_alignment(const GroupLayout& groups, DType type) {
  return common_alignment((is_spaced(groups.bounds) ? uint64_t(groups.spacing) : 1) * size_of(type));
}

/// `other`: the grouping that cuts the operand's dimension beside K. A list names lines along K.
OperandLayout layout_of(const MatrixLayout& layout, int64_t stride_k, int64_t size_k, int64_t stride_other,
                        int64_t size_other, const GemmProblem& p, Grouping other) {
  const GroupLayout& groups = p.groups;
  const bool listed = p.gather.given && groups.dimension == other;
  OperandLayout o{listed ? Major::k : major_of(stride_k, size_k, stride_other, size_other), 0, 0, 0};
  const bool strided_matters = o.major == Major::k ? size_other > 1 : size_k > 1;
  o.stride = strided_matters ? (o.major == Major::k ? stride_other : stride_k) : 0;
  o.alignment = matrix_alignment(layout.alignment, layout.dtype, o.stride, p.batch > 1 ? layout.stride_batch : 0);
  const Grouping contiguous = o.major == Major::k ? Grouping::k : other;
  o.load_bytes =
      contiguous == groups.dimension ? std::min(o.alignment, group_alignment(groups, layout.dtype)) : o.alignment;
  return o;
}

/// The operands of a convolution. Their order is given, and each tap's channels begin a line.
OperandLayouts conv_layouts(const GemmProblem& p, bool turned) {
  const auto make = [&](const MatrixLayout& layout, Major major, bool is_a) {
    const int64_t batch_stride = p.batch > 1 ? layout.stride_batch : 0;
    const int64_t stride = is_a == (major == Major::k) ? layout.stride_row : layout.stride_col;
    OperandLayout o{major, stride, matrix_alignment(layout.alignment, layout.dtype, stride, batch_stride), 0};
    o.load_bytes = std::min(o.alignment, line_alignment(p.conv, layout, is_a != turned));
    return o;
  };
  Major a = p.conv.kind == Conv::wgrad ? Major::mn : Major::k;
  Major b = p.conv.kind == Conv::fprop ? Major::k : Major::mn;
  if (turned) std::swap(a, b);
  return {make(p.a, a, true), make(p.b, b, false)};
}

}  // namespace

OperandLayouts operand_layouts(const GemmProblem& p, bool turned) {
  if (p.conv.kind != Conv::none) return conv_layouts(p, turned);
  OperandLayouts both{layout_of(p.a, p.a.stride_col, p.k, p.a.stride_row, rows_of_a(p), p, Grouping::m),
                      layout_of(p.b, p.b.stride_row, p.k, p.b.stride_col, stored_columns_of_b(p), p, Grouping::n)};
  // The up columns begin n columns after the gate columns.
  if (is_gated(p) && both.b.major == Major::mn)
    both.b.load_bytes = matrix_alignment(both.b.load_bytes, p.b.dtype, p.n, 0);
  return both;
}

uint32_t output_alignment(const GemmProblem& p, Order order) {
  const MatrixLayout& layout = p.d;
  const bool strided_matters = (order == Order::row ? p.m : p.n) > 1;
  const int64_t stride = strided_matters ? (order == Order::row ? layout.stride_row : layout.stride_col) : 0;
  const int64_t across = order == Order::row ? p.n : p.m;
  return std::min(matrix_alignment(layout.alignment, layout.dtype, stride, p.batch > 1 ? layout.stride_batch : 0),
                  matrix_alignment(16, layout.dtype, across, 0));
}

}  // namespace cleave
