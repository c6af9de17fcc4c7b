#include "cpu/tile_epilogue.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/enumerators.h"
#include "cleave/core/quantizer.h"
#include "cleave/epilogue.h"
#include "epilogue/evaluate.h"
#include "problem/problem.h"

namespace cleave::cpu {
namespace {

static_assert(kMaxTileN <= kEvaluatedLanes);

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
    : problem_(problem), tiling_(tiling), arguments_(arguments) {
  const Order order = output_order(problem).value();
  config_ = {.c = problem.c.dtype,
             .d = problem.d.dtype,
             .bias_dtype = problem.bias_dtype,
             .order = order,
             .bias = problem.bias,
             .has_c = problem.has_c,
             .scaling = scaling_of(problem),
             .scaled_rows = problem.scale_a.kind == Scaling::vector,
             .scaled_columns = problem.scale_b.kind == Scaling::vector,
             .has_zero = problem.has_zero,
             .has_scale_d = problem.has_scale_d,
             .has_scale_out = finds_scales(problem),
             .ue8m0 = problem.ue8m0_scale_out};
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
             .amax = problem.has_amax ? arguments.amax : nullptr,
             .scale_out = arguments.scale_out,
             .scale_out_row_stride = problem.scale_out.stride_row,
             .scale_out_block_stride = problem.scale_out.stride_k,
             .scale_out_batch_stride = problem.scale_out.stride_batch};
  const auto scales = [](const ScaleLayout& layout, const float* data) {
    return ScaleParams{data, layout.stride_row, layout.stride_k, layout.stride_batch};
  };
  scales_a_ = scales(problem.scale_a, arguments.scale_a);
  listed_ = list_params(problem);
  listed_.entries = arguments.gather;
  scales_b_ = scales(problem.scale_b, arguments.scale_b);
}

template <class Sum>
struct TileEpilogue<Sum>::FunctionLines {
  const TileEpilogue& epilogue;
  const TileArea& area;
  uint32_t batch;
  std::vector<float> scratch, values;  // a line for each input, then for each output beside D
  const float* inputs[kMostEpilogueInputs] = {};

  /// What does not change from line to line is read here.
  FunctionLines(const TileEpilogue& of, const TileArea& tile, uint32_t entry)
      : epilogue(of), area(tile), batch(entry), scratch(function().evaluator().scratch()) {
    values.resize((function().inputs().size() + epilogue.outputs_beside_d()) * kEvaluatedLanes);
    for (uint32_t i = 0; i < function().inputs().size(); ++i) {
      inputs[i] = line(i);
      const EpilogueArgument& argument = epilogue.arguments_.epilogue_inputs[i];
      const EpilogueLayout& layout = layout_of(i);
      if (layout.shape == InputShape::row) {
        load(i, batch * layout.stride_batch + area.column * layout.stride, layout.stride);
      } else if (layout.shape == InputShape::scalar) {
        const float value = argument.data == nullptr
                                ? argument.value
                                : load_element(layout.dtype, argument.data, batch * layout.stride_batch);
        std::fill_n(line(i), area.columns, value);
      }
    }
  }

  /// Turns a line of sums into D's. `ups`: those of the up projection, of a gated function.
  void run(uint32_t row, float* sums, const float* ups) {
    for (uint32_t i = 0; i < function().inputs().size(); ++i) {
      const EpilogueLayout& layout = layout_of(i);
      if (layout.shape == InputShape::column) {
        const void* const data = epilogue.arguments_.epilogue_inputs[i].data;
        std::fill_n(line(i), area.columns,
                    load_element(layout.dtype, data, batch * layout.stride_batch + row * layout.stride));
      } else if (layout.shape == InputShape::matrix) {
        const int64_t first =
            batch * layout.stride_batch + epilogue_offset(layout.order, layout.stride, row, area.column);
        load(i, first, epilogue_offset(layout.order, layout.stride, 0, 1));
      }
    }
    const uint32_t outputs_beside = epilogue.outputs_beside_d();
    float* outputs[1 + kMostEpilogueOutputs] = {sums};
    const auto first_output = uint32_t(function().inputs().size());
    for (uint32_t o = 0; o < outputs_beside; ++o) outputs[1 + o] = line(first_output + o);
    function().evaluator()(area.columns, sums, ups, inputs, outputs, scratch);
    for (uint32_t o = 0; o < outputs_beside; ++o) {
      store_line(epilogue.output(o), outputs[1 + o], area.columns, row, area.column, batch);
    }
  }

 private:
  const EpilogueFunction& function() const { return *epilogue.problem_.epilogue.function; }
  const EpilogueLayout& layout_of(uint32_t input) const { return epilogue.problem_.epilogue.inputs[input]; }
  float* line(uint32_t number) { return values.data() + size_t(number) * kEvaluatedLanes; }
  void load(uint32_t input, int64_t first, int64_t step) {
    const void* const data = epilogue.arguments_.epilogue_inputs[input].data;
    float* const to = line(input);
    dispatch(layout_of(input).dtype, [&]<DType type>() {
      for (uint32_t j = 0; j < area.columns; ++j) to[j] = load_element(type, data, first + j * step);
    });
  }
};

template <class Sum>
void TileEpilogue<Sum>::operator()(const TileCoord& coord, uint32_t begin, uint32_t end, const Sum* sums) const {
  const TileArea area = area_of(problem_, tiling_, coord);
  const bool empty = tiling_.grouping == Grouping::k ? coord.range.size() == 0 : problem_.k == 0;
  const uint32_t up = tiling_.columns();  // under a gate: where the up columns begin in a line of sums
  const GateColumns gates = gate_columns(problem_);
  BroadcastValues column_values[kWidestTileN];
  std::optional<FunctionLines> lines;
  if (problem_.epilogue.function != nullptr) lines.emplace(*this, area, coord.batch);
  for (uint32_t part = 0; part < tiling_.parts; ++part) {
    for (uint32_t j = 0; j < area.columns; ++j) {
      const uint32_t column = gates.of(area.column + j, part);
      column_values[part * up + j] = column_broadcast(config_, params_, scales_b_, column, coord.batch, column);
    }
  }
  for (uint32_t i = begin; i < min_of(end, area.rows); ++i) {
    const Sum* const line = sums + i * tiling_.tile_n;
    const uint32_t row = tiling_.row_of_d(coord, area.row + i);
    const uint32_t scaled_row = listed_.entries == nullptr ? row : scale_row<true>(listed_, row);
    const BroadcastValues row_values = row_broadcast(config_, params_, scales_a_, row, coord.batch, scaled_row);
    const auto at = [&](uint32_t j) { return ElementCoord{row, area.column + j, coord.batch}; };
    if constexpr (std::is_same_v<Sum, int32_t>) {
      if (config_.d == DType::i32) {
        int32_t integers[kMaxTileN];
        for (uint32_t j = 0; j < area.columns; ++j) {
          const int32_t c = c_integer(config_, params_, at(j));
          integers[j] = epilogue_integer(config_, params_, line[j], row_values, column_values[j], empty, c);
        }
        store_line(d(), integers, area.columns, row, area.column, coord.batch);
        continue;
      }
    }
    // The value of a gate column or, from `up` on, of an up column; neither is added to C.
    const auto value_of = [&](uint32_t j) {
      return epilogue_value(config_, params_, line[j], row_values, column_values[j], empty,
                            c_element(config_, params_, at(j)));
    };
    float values[kMaxTileN], ups[kMaxTileN];
    for (uint32_t j = 0; j < area.columns; ++j) {
      values[j] = value_of(j);
      if (tiling_.parts == 2) ups[j] = value_of(up + j);
    }
    if (lines) lines->run(row, values, ups);
    if (params_.amax != nullptr) raise_amax(values, area.columns);
    if (config_.has_scale_d) {
      const float factor = stored_factor(config_, params_);
      for (uint32_t j = 0; j < area.columns; ++j) values[j] *= factor;
    }
    if (config_.has_scale_out) quantize(values, area.columns, row, area.column, coord.batch);
    store_line(d(), values, area.columns, row, area.column, coord.batch);
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
      const uint32_t count = min_of(kMaxTileN, columns.end - column);
      store_line(d(), zeros, count, row, column, 0);
      for (uint32_t o = 0; o < outputs_beside_d(); ++o) store_line(output(o), zeros, count, row, column, 0);
      if (config_.has_scale_out) scale_out(row, column, 0) = 0.0f;
    }
  }
}

template <class Sum>
uint32_t TileEpilogue<Sum>::outputs_beside_d() const {
  const EpilogueFunction* const function = problem_.epilogue.function;
  return function == nullptr ? 0 : uint32_t(function->outputs().size() - 1);
}

template <class Sum>
auto TileEpilogue<Sum>::output(uint32_t beside_d) const -> Target {
  const EpilogueLayout& layout = problem_.epilogue.outputs[beside_d];
  return {layout.dtype, layout.order, arguments_.epilogue_outputs[beside_d], layout.stride, layout.stride_batch};
}

template <class Sum>
template <class Value>
void TileEpilogue<Sum>::store_line(const Target& target, const Value* values, uint32_t count, uint32_t row,
                                   uint32_t column, uint32_t batch) {
  const int64_t first = target.offset(row, column, batch);
  const int64_t step = epilogue_offset(target.order, target.stride, 0, 1);
  dispatch(target.dtype, [&, data = target.data]<DType type>() {
    for (uint32_t j = 0; j < count; ++j) store_element(type, data, first + j * step, values[j]);
  });
}

template <class Sum>
float& TileEpilogue<Sum>::scale_out(uint32_t row, uint32_t column, uint32_t batch) const {
  return params_.scale_out[scale_out_offset(params_, row, column / kScaleBlock, batch)];
}

template <class Sum>
void TileEpilogue<Sum>::quantize(float* values, uint32_t count, uint32_t row, uint32_t column, uint32_t batch) const {
  Reach reach;
  for (uint32_t j = 0; j < count; ++j) reach.add(true, values[j]);
  const Quantizer quantizer = quantizer_for(config_.d, true, config_.ue8m0, reach);
  for (uint32_t j = 0; j < count; ++j) values[j] = quantized(quantizer, true, values[j]);
  scale_out(row, column, batch) = quantizer.scale;
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
