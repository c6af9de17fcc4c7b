#include "plan/plans/reduce_kernel.h"

#include "jit/translation_unit.h"

namespace cleave {

void ReduceKernel::launch(uint32_t blocks, uint32_t outputs, ReduceParams params, CUstream stream) const {
  const LaunchShape shape{.grid = {blocks, outputs, 1}, .block = {kReduceThreads, 1, 1}, .programmatic = true};
  prepare(stream).launch(shape, stream, &params);
}

const Kernel& ReduceKernel::prepare(CUstream stream) const {
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
