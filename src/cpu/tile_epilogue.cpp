#include "cpu/tile_epilogue.h"

#include <atomic>
#include <type_traits>

#include "base/enumerators.h"
#include "problem/problem.h"

namespace cleave::cpu {
namespace {

/// |x| as an integer: the order is that of the numbers, and a NaN is larger than all of them.
int32_t magnitude(float x) {
  return int32_t(float_bits(x) & 0x7fffffffu);
}

int64_t line_stride(Order order, const MatrixLayout& layout) {
  return order == Order::row ? layout.stride_row : layout.stride_col;
}

}  // namespace

template <class Sum>
TileEpilogue<Sum>::TileEpilogue(const GemmProblem& problem, const GemmArguments& arguments, const Tiling& tiling)
    : problem_(problem), tiling_(tiling) {
  const Order order = output_order(problem).value();
  config_ = {.c = problem.c.dtype,
             .d = problem.d.dtype,
             .bias_dtype = problem.bias_dtype,
             .order = order,
             .activation = problem.activation,
             .bias = problem.bias,
             .has_c = problem.has_c,
             .scaling = problem.scale_a.kind,
             .has_zero = problem.has_zero,
             .has_scale_d = problem.has_scale_d};
  params_ = {.alpha = arguments.alpha,
             .beta = arguments.beta,
             .d = arguments.d,
             .c = arguments.c,
             .bias = arguments.bias,
             .d_stride = line_stride(order, problem.d),
             .d_batch_stride = problem.d.stride_batch,
             .c_stride = line_stride(order, problem.c),
             .c_batch_stride = problem.c.stride_batch,
             .bias_batch_stride = problem.bias_stride_batch,
             .zero_a = arguments.zero_a,
             .zero_b = arguments.zero_b,
             .scale_d = arguments.scale_d,
             .amax = problem.has_amax ? arguments.amax : nullptr};
  const auto scales = [](const ScaleLayout& layout, const float* data) {
    return ScaleParams{data, layout.stride_row, layout.stride_k, layout.stride_batch};
  };
  scales_a_ = scales(problem.scale_a, arguments.scale_a);
  scales_b_ = scales(problem.scale_b, arguments.scale_b);
}

template <class Sum>
void TileEpilogue<Sum>::operator()(const TileCoord& coord, uint32_t begin, uint32_t end, const Sum* sums) const {
  const TileArea area = area_of(problem_, tiling_, coord);
  const bool empty = tiling_.grouping == Grouping::k ? coord.range.size() == 0 : problem_.k == 0;
  const uint32_t up = tiling_.columns();  // under swiglu: where the up columns begin in a line of sums
  BroadcastValues column_values[kMaxTileN];
  for (uint32_t part = 0; part < tiling_.parts; ++part) {
    const uint32_t column = part * uint32_t(problem_.n) + area.column;
    for (uint32_t j = 0; j < area.columns; ++j) {
      column_values[part * up + j] = column_broadcast(config_, params_, scales_b_, column + j, coord.batch);
    }
  }
  for (uint32_t i = begin; i < min_of(end, area.rows); ++i) {
    const Sum* const line = sums + i * tiling_.tile_n;
    const uint32_t row = tiling_.row_of_d(coord, area.row + i);
    const BroadcastValues row_values = row_broadcast(config_, params_, scales_a_, row, coord.batch);
    const auto at = [&](uint32_t j) { return ElementCoord{row, area.column + j, coord.batch, empty}; };
    if constexpr (std::is_same_v<Sum, int32_t>) {
      if (config_.d == DType::i32) {
        int32_t integers[kMaxTileN];
        for (uint32_t j = 0; j < area.columns; ++j) {
          integers[j] = epilogue_integer(config_, params_, line[j], row_values, column_values[j], at(j));
        }
        store_line(integers, area.columns, row, area.column, coord.batch);
        continue;
      }
    }
    const auto value_of = [&](uint32_t j) {  // of a gate column or, from `up` on, of an up column
      return epilogue_value(config_, params_, line[j], row_values, column_values[j], at(j));
    };
    float values[kMaxTileN];
    for (uint32_t j = 0; j < area.columns; ++j) {
      values[j] = tiling_.parts == 2 ? swiglu(value_of(j), value_of(up + j)) : value_of(j);
    }
    if (params_.amax != nullptr) raise_amax(values, area.columns);
    if (config_.has_scale_d) {
      const float factor = stored_factor(config_, params_);
      for (uint32_t j = 0; j < area.columns; ++j) values[j] *= factor;
    }
    store_line(values, area.columns, row, area.column, coord.batch);
  }
}

template <class Sum>
void TileEpilogue<Sum>::zero(GroupRange range) const {
  const bool of_rows = problem_.groups.dimension == Grouping::m;
  const GroupRange rows = of_rows ? range : GroupRange{0, uint32_t(problem_.m)};
  const GroupRange columns = of_rows ? GroupRange{0, uint32_t(problem_.n)} : range;
  const float zeros[kMaxTileN] = {};
  for (uint32_t row = rows.begin; row < rows.end; ++row) {
    for (uint32_t column = columns.begin; column < columns.end; column += kMaxTileN) {
      store_line(zeros, min_of(kMaxTileN, columns.end - column), row, column, 0);
    }
  }
}

template <class Sum>
template <class Value>
void TileEpilogue<Sum>::store_line(const Value* values, uint32_t count, uint32_t row, uint32_t column,
                                   uint32_t batch) const {
  const int64_t first =
      int64_t(batch) * params_.d_batch_stride + epilogue_offset(config_.order, params_.d_stride, row, column);
  const int64_t step = epilogue_offset(config_.order, params_.d_stride, 0, 1);
  dispatch(config_.d, [&, d = params_.d]<DType type>() {
    for (uint32_t j = 0; j < count; ++j) store_element(type, d, first + j * step, values[j]);
  });
}

template <class Sum>
void TileEpilogue<Sum>::raise_amax(const float* values, uint32_t count) const {
  int32_t largest = 0;
  for (uint32_t j = 0; j < count; ++j) largest = max_of(largest, magnitude(values[j]));
  const std::atomic_ref amax(*params_.amax);
  float seen = amax.load();
  while (int32_t(float_bits(seen)) < largest && !amax.compare_exchange_weak(seen, bits_float(uint32_t(largest)))) {
  }
}

template class TileEpilogue<float>;
template class TileEpilogue<int32_t>;

}  // namespace cleave::cpu
