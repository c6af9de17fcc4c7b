// Where a product's kernel leaves what an epilogue function reduces D to, and how a second kernel joins the parts:
// what follows from a kernel's configuration and the sizes of one product. Where tiles have whole lines, their results
// are no partial ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cleave/config/clusters.h"
#include "cleave/config/reductions.h"
#include "cleave/reduce/reduce_params.h"
#include "launch/gemm_grid.h"
#include "launch/product.h"

namespace cleave {

/// Units of D along each dimension; along a grouped one: at most.
struct ReducedUnits {
  uint32_t rows = 0, columns = 0;
};

inline ReducedUnits reduced_units(const GemmConfig& config, const GemmTiles& tiles) {
  const auto most_along = [&](Grouping dimension, uint32_t along, uint32_t across) {
    return config.schedule.grouping == dimension && across > 0 ? uint32_t(tiles.total / across) : along;
  };
  return {reduced_row_units(config, most_along(Grouping::m, tiles.m, tiles.n)),
          reduced_column_units(config, most_along(Grouping::n, tiles.n, tiles.m))};
}

CLEAVE_HD constexpr bool cuts_d(Grouping grouping) {
  return grouping == Grouping::m || grouping == Grouping::n;
}

/// The second kernel's configuration.
CLEAVE_HD constexpr ReduceConfig reduce_config(const GemmConfig& config) {
  return {.group_capacity = cuts_d(config.schedule.grouping) ? config.schedule.group_capacity : 0};
}

/// The partial results of a product.
class Joins {
 public:
  Joins() = default;
  /// `problem`: as the kernel reads it; of a convolution its view (conv_view).
  Joins(const GemmConfig& config, const GemmProblem& problem, const ReducedUnits& units) {
    params_.groups = group_params(problem);
    params_.group_step = group_step(config);
    for (uint32_t i = 0; i < config.epilogue.function.outputs; ++i) {
      const Reduction reduction = config.epilogue.function.output(i).reduction;
      if (reduction == Reduction::none) continue;
      const Parts parts = parts_of(config, problem, units, problem.epilogue.outputs[i], reduction);
      if (!are_results(parts.results, problem.groups.dimension)) add(i, parts);
    }
  }

  bool any() const { return count_ > 0; }
  /// What all partial results take.
  size_t bytes() const { return round_up<size_t>(elements_ * sizeof(float), 16); }
  /// The second kernel's grid: (blocks, outputs). Its CTAs have kReduceThreads.
  uint32_t blocks() const { return blocks_; }
  uint32_t outputs() const { return count_; }

  /// Where the product's kernel finds room for partial results, but for the pointers.
  void place(GemmParams& params) const {
    for (uint32_t i = 0; i < count_; ++i) {
      FunctionOperand& operand = params.epilogue.outputs[outputs_[i].number];
      operand.stride = outputs_[i].unit_stride;
      operand.batch_stride = params_.outputs[i].entry_stride;
    }
  }
  /// And these.
  void point(void* partials, GemmParams& params) const {
    for (uint32_t i = 0; i < count_; ++i)
      params.epilogue.outputs[outputs_[i].number].data = static_cast<float*>(partials) + outputs_[i].first;
  }

  /// The second kernel's parameter. `partials`: as given to `point`.
  ReduceParams params(const void* partials, const GemmArguments& arguments) const {
    ReduceParams params = params_;
    for (uint32_t i = 0; i < count_; ++i) {
      params.outputs[i].partials = static_cast<const float*>(partials) + outputs_[i].first;
      params.outputs[i].results = static_cast<float*>(arguments.epilogue_outputs[outputs_[i].number]);
    }
    params.groups.offsets = arguments.group_offsets;
    params.groups.sizes = arguments.group_sizes;
    return params;
  }

 private:
  /// Those of an output, but for the pointers.
  struct Parts {
    PartialResults results;
    int64_t unit_stride;  // as the product's kernel counts units: of all of D, rows of them
    size_t elements() const {
      return size_t(results.units) * results.lines * (results.entry_stride == 0 ? 1 : results.entries);
    }
  };
  struct Output {
    uint32_t number;  // among the function's beside D
    size_t first;     // element of the partial results
    int64_t unit_stride;
  };

  /// Units of a step of the schedule along the groups.
  static uint32_t units_of_step(const GemmConfig& c, const ReducedUnits& units, InputShape shape) {
    const bool by_rows = c.schedule.grouping == Grouping::m;
    const uint32_t along = by_rows ? reduced_row_units(c, 1) : reduced_column_units(c, 1);
    return shape == InputShape::scalar ? along * (by_rows ? units.columns : units.rows) : along;
  }

  static Parts parts_of(const GemmConfig& config, const GemmProblem& p, const ReducedUnits& units,
                        const EpilogueLayout& layout, Reduction reduction) {
    const Grouping grouping = p.groups.dimension;
    const bool cut = cuts_d(grouping), over_groups = is_over_groups(grouping, layout.shape);
    const auto rows = uint32_t(p.m), columns = uint32_t(p.n);
    PartialResults results{.reduction = reduction,
                           .entries = cut && !over_groups ? 1 : uint32_t(p.batch),
                           .result_stride = layout.stride,
                           .result_entry_stride = layout.stride_batch};
    // Where all of D is reduced: the units of a group follow each other.
    int64_t unit_stride = grouping == Grouping::n ? units.rows : units.columns;
    switch (layout.shape) {
      case InputShape::column:
        results.units = units.columns, results.lines = rows, unit_stride = rows;
        break;
      case InputShape::row:
        results.units = units.rows, results.lines = columns, unit_stride = columns;
        break;
      default:
        results.units = units.rows * units.columns, results.lines = 1;
        break;
    }
    results.joins_entries = layout.stride_batch == 0;
    if (over_groups) results.units_of_step = units_of_step(config, units, layout.shape);
    if (!cut) results.entry_stride = int64_t(results.units) * results.lines;
    return {results, unit_stride};
  }

  /// Whether lines of one unit each are what is asked for, where a product's kernel finds it placed as other outputs
  /// are. Lines that belong to no group are the second kernel's.
  static bool are_results(const PartialResults& x, Grouping grouping) {
    return x.units == 1 && !cuts_d(grouping) && (x.lines == 1 || x.result_stride == 1) &&
           (!x.joins_entries || x.entries == 1);
  }

  void add(uint32_t number, const Parts& parts) {
    const PartialResults& results = params_.outputs[count_] = parts.results;
    outputs_[count_++] = {number, elements_, parts.unit_stride};
    elements_ += parts.elements();
    blocks_ = max_of(blocks_, results.line_blocks() * (results.joins_entries ? 1 : results.entries));
  }

  ReduceParams params_;
  uint32_t count_ = 0, blocks_ = 0;
  size_t elements_ = 0;
  Output outputs_[kMostEpilogueOutputs] = {};
};

}  // namespace cleave
