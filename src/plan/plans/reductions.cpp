#include "plan/plans/reductions.h"

#include "jit/translation_unit.h"
#include "problem/problem.h"

namespace cleave {

Joins joins_of(const Choice& choice) {
  if (!reduces(choice.problem)) return {};
  return {choice.config, choice.problem, {choice.row_units, choice.column_units}};
}

Reductions::Reductions(const Choice& choice)
    : device_(choice.problem.device), config_(reduce_config(choice.config)), joins_(joins_of(choice)) {
  shape_ = {.grid = {joins_.blocks(), joins_.outputs(), 1}, .block = {kReduceThreads, 1, 1}, .programmatic = true};
}

void Reductions::launch(const void* partials, const GemmArguments& arguments, CUstream stream) const {
  if (shape_.grid.x == 0) return;
  ReduceParams params = joins_.params(partials, arguments);
  kernel(stream).launch(shape_, stream, &params);
}

const Kernel& Reductions::kernel(CUstream stream) const {
  return kernel_.get(stream, [this] { return KernelRequest{"reduce_partials", source(), reduce_entry, device_}; });
}

std::string reduce_source(const ReduceConfig& config) {
  return translation_unit({
      .folder = "reduce",
      .name = "reduce_partials",
      .config = "ReduceConfig",
      .members = CLEAVE_PRINT_MEMBERS(config, group_capacity),
      .launch_bounds = "cleave::kReduceThreads, 1",
      .entry = reduce_entry,
      .params = "ReduceParams",
  });
}

}  // namespace cleave
