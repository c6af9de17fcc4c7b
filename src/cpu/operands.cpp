#include "cpu/operands.h"

#include "cpu/micro_kernel.h"
#include "cpu/weights.h"
#include "launch/product.h"

namespace cleave::cpu {

Operands::Operands(const GemmProblem& problem, const GemmArguments& arguments, const Tiling& tiling)
    : problem_(problem),
      arguments_(arguments),
      tiling_(tiling),
      listed_(list_params(problem)),
      gates_(gate_columns(problem)) {
  if (problem.conv.kind != Conv::none) gather_.emplace(problem, arguments);
  listed_.entries = arguments.gather;
}

void Operands::pack_a(const TileCoord& coord, Span rows, Span k, float* out) const {
  if (gathers_a(problem_.conv.kind)) {
    return gather_->pack_a(tiling_.classes[coord.conv_class], coord.batch, rows, k, out);
  }
  const MatrixLayout& a = problem_.a;
  if (listed_.entries != nullptr) {
    uint32_t named[kMaxTileM];
    for (uint32_t i = 0; i < rows.count; ++i) named[i] = listed_row(listed_, rows.first + i);
    const int64_t first = k.first * a.stride_col;
    return cpu::pack_a({a.dtype, arguments_.a, first, a.stride_row, a.stride_col, rows.count, k.count, named}, k.count,
                       out);
  }
  const Place at = place(a, coord, a.stride_row, a.stride_col, problem_.m, rows.first, k.first);
  cpu::pack_a({a.dtype, arguments_.a, at.offset, at.stride, a.stride_col, rows.count, k.count}, k.count, out);
}

void Operands::pack_b(const TileCoord& coord, Span columns, bool is_up, Span k, float* out) const {
  switch (problem_.conv.kind) {
    case Conv::wgrad:
      return gather_->pack_b(tiling_.classes[coord.conv_class], coord.batch, columns, k, out);
    case Conv::dgrad:
      return pack_filters(coord, columns, k, out);
    default:
      break;
  }
  if (problem_.weights_b.format != WeightFormat::none) {
    const uint32_t first = gates_.of(columns.first, is_up);
    return pack_weights(problem_, arguments_, coord.batch, {first, columns.count}, k, out);
  }
  const MatrixLayout& b = problem_.b;
  const int64_t stride = b.stride_col * gates_.step;
  Place at = place(b, coord, stride, b.stride_row, problem_.n, columns.first, k.first);
  at.offset += is_up * gates_.up * b.stride_col;
  cpu::pack_b({b.dtype, arguments_.b, at.offset, at.stride, b.stride_row, columns.count, k.count}, k.count, out);
}

Operands::Place Operands::place(const MatrixLayout& layout, const TileCoord& coord, int64_t line_stride,
                                int64_t k_stride, int64_t lines, uint32_t line, uint32_t k) const {
  if (!problem_.groups.apart)
    return {coord.batch * layout.stride_batch + line * line_stride + k * k_stride, line_stride};
  const int64_t room = group_room(group_params(problem_), coord.range);
  return {coord.range.begin * lines + line * room + (k - coord.range.begin), room};
}

void Operands::pack_filters(const TileCoord& coord, Span columns, Span k, float* out) const {
  const MatrixLayout& b = problem_.b;
  const ConvClass& c = tiling_.classes[coord.conv_class];
  const int64_t first = coord.batch * b.stride_batch + columns.first;
  for_each_tap(c, gather_->per_tap(), k, [&](const TapRun& run) {
    const int64_t tap = c.filter_tap(run.tap) * problem_.conv.channels;
    cpu::pack_b({b.dtype, arguments_.b, first + tap + run.channel * b.stride_row, b.stride_col, b.stride_row,
                 columns.count, run.count},
                k.count, out + run.begin * kMicroColumns);
  });
}

}  // namespace cleave::cpu
