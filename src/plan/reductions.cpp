#include "plan/reductions.h"

#include <algorithm>

#include "cleave/config/clusters.h"
#include "cleave/config/reductions.h"
#include "cleave/epilogue.h"
#include "jit/translation_unit.h"
#include "launch/product.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr const char* kEntry = "cleave_reduce";

/// Partial results of an output that is reduced, but for the pointers.
struct Partials {
  PartialResults results;
  int64_t unit_stride;  // as the product's kernel counts units: of all of D, rows of them
  size_t elements() const {
    return size_t(results.units) * results.lines * (results.entry_stride == 0 ? 1 : results.entries);
  }
};

bool cuts_d(Grouping grouping) {
  return grouping == Grouping::m || grouping == Grouping::n;
}

/// Units of a step of the schedule along the groups.
uint32_t units_of_step(const Choice& choice, InputShape shape) {
  const GemmConfig& c = choice.config;
  const bool by_rows = c.schedule.grouping == Grouping::m;
  const uint32_t along = by_rows ? reduced_row_units(c, 1) : reduced_column_units(c, 1);
  return shape == InputShape::scalar ? along * (by_rows ? choice.column_units : choice.row_units) : along;
}

Partials partials_of(const Choice& choice, uint32_t output) {
  const GemmProblem& p = choice.problem;
  const Grouping grouping = p.groups.dimension;
  const EpilogueLayout& layout = p.epilogue.outputs[output];
  const bool cut = cuts_d(grouping), over_groups = is_over_groups(grouping, layout.shape);
  const auto rows = uint32_t(choice.rows_of_d), columns = uint32_t(p.n);
  PartialResults results{.reduction = p.epilogue.function->outputs()[output + 1].reduction,
                         .entries = cut && !over_groups ? 1 : uint32_t(p.batch),
                         .result_stride = layout.stride,
                         .result_entry_stride = layout.stride_batch};
  // Where all of D is reduced: the units of a group follow each other.
  int64_t unit_stride = grouping == Grouping::n ? choice.row_units : choice.column_units;
  switch (layout.shape) {
    case InputShape::column:
      results.units = choice.column_units, results.lines = rows, unit_stride = rows;
      break;
    case InputShape::row:
      results.units = choice.row_units, results.lines = columns, unit_stride = columns;
      break;
    default:
      results.units = choice.row_units * choice.column_units, results.lines = 1;
      break;
  }
  results.joins_entries = layout.stride_batch == 0;
  if (over_groups) results.units_of_step = units_of_step(choice, layout.shape);
  if (!cut) results.entry_stride = int64_t(results.units) * results.lines;
  return {results, unit_stride};
}

/// Whether lines of one unit each are what is asked for, where a product's kernel finds it placed as other outputs are.
/// Lines that belong to no group are the second kernel's.
bool are_results(const PartialResults& x, Grouping grouping) {
  return x.units == 1 && !cuts_d(grouping) && (x.lines == 1 || x.result_stride == 1) &&
         (!x.joins_entries || x.entries == 1);
}

/// Calls use(output, its partial results) for every output whose partial results are to be joined.
template <class Use>
void for_each_joined(const Choice& choice, const Use& use) {
  const auto& outputs = choice.problem.epilogue.function->outputs();
  for (uint32_t i = 0; i + 1 < outputs.size(); ++i) {
    if (outputs[i + 1].reduction == Reduction::none) continue;
    const Partials partials = partials_of(choice, i);
    if (!are_results(partials.results, choice.problem.groups.dimension)) use(i, partials);
  }
}

}  // namespace

bool joins_partials(const Choice& choice) {
  bool joins = false;
  if (reduces(choice.problem)) for_each_joined(choice, [&](uint32_t, const Partials&) { joins = true; });
  return joins;
}

size_t reduction_bytes(const Choice& choice) {
  size_t elements = 0;
  for_each_joined(choice, [&](uint32_t, const Partials& partials) { elements += partials.elements(); });
  return round_up<size_t>(elements * sizeof(float), 16);
}

Reductions::Reductions(const Choice& choice) : device_(choice.problem.device) {
  if (cuts_d(choice.problem.groups.dimension)) config_.group_capacity = choice.config.schedule.group_capacity;
  params_.groups = group_params(choice.problem);
  params_.group_step = group_step(choice.config);
  size_t elements = 0;
  uint32_t blocks = 0;
  for_each_joined(choice, [&](uint32_t number, const Partials& partials) {
    const PartialResults& results = params_.outputs[count_] = partials.results;
    outputs_[count_++] = {number, elements, partials.unit_stride};
    elements += partials.elements();
    blocks = max_of(blocks, results.line_blocks() * (results.joins_entries ? 1 : results.entries));
  });
  shape_ = {.grid = {blocks, count_, 1}, .block = {kReduceThreads, 1, 1}, .programmatic = true};
}

void Reductions::place(GemmParams& params) const {
  for (uint32_t i = 0; i < count_; ++i) {
    const PartialResults& results = params_.outputs[i];
    FunctionOperand& operand = params.epilogue.outputs[outputs_[i].number];
    operand.stride = outputs_[i].unit_stride;
    operand.batch_stride = results.entry_stride;
  }
}

void Reductions::point(void* partials, GemmParams& params) const {
  for (uint32_t i = 0; i < count_; ++i)
    params.epilogue.outputs[outputs_[i].number].data = static_cast<float*>(partials) + outputs_[i].first;
}

void Reductions::launch(const void* partials, const GemmArguments& arguments, CUstream stream) const {
  if (shape_.grid.x == 0) return;
  ReduceParams params = params_;
  for (uint32_t i = 0; i < count_; ++i) {
    params.outputs[i].partials = static_cast<const float*>(partials) + outputs_[i].first;
    params.outputs[i].results = static_cast<float*>(arguments.epilogue_outputs[outputs_[i].number]);
  }
  params.groups.offsets = arguments.group_offsets;
  params.groups.sizes = arguments.group_sizes;
  kernel(stream).launch(shape_, stream, &params);
}

const Kernel& Reductions::kernel(CUstream stream) const {
  return kernel_.get(stream, [this] { return KernelRequest{"reduce_partials", source(), kEntry, device_}; });
}

std::string Reductions::source() const {
  return translation_unit({
      .folder = "reduce",
      .name = "reduce_partials",
      .config = "ReduceConfig",
      .members = CLEAVE_PRINT_MEMBERS(config_, group_capacity),
      .launch_bounds = "cleave::kReduceThreads, 1",
      .entry = kEntry,
      .params = "ReduceParams",
  });
}

}  // namespace cleave
