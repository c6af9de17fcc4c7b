#include <stdexcept>

#include "emitted/operation.h"

#include "checks.h"
#include "device.h"

namespace emitted::operation {
namespace {

void refuse(const std::string& reason) {
  if (!reason.empty()) throw std::invalid_argument(reason);
}

/// Worked out, or refused with the reason.
const Call& work_out(const Device& device, const Arguments& arguments, Given& given) {
  refuse(read(arguments, given));
  const Kernel& kernel = device.kernel();
  const Call& call = Call::of(given.problem, kernel, device.num_sms());
  refuse(call.obstacle());
  if (call.grid().blocks > 0) refuse(find_misplaced(given, kernel));
  return call;
}

}  // namespace

Operation::Operation(int device) : device_(std::make_unique<const Device>(device)) {}
Operation::~Operation() = default;
Operation::Operation(Operation&&) noexcept = default;
Operation& Operation::operator=(Operation&&) noexcept = default;

std::string Operation::why_not(const Arguments& arguments) const {
  try {
    Given given;
    work_out(*device_, arguments, given);
    return {};
  } catch (const std::invalid_argument& reason) {
    return reason.what();
  }
}

size_t Operation::workspace_size(const Arguments& arguments) const {
  Given given;
  const cleave::GemmGrid& grid = work_out(*device_, arguments, given).grid();
  return grid.counter_bytes + grid.partial_bytes;
}

size_t Operation::counter_size(const Arguments& arguments) const {
  Given given;
  return work_out(*device_, arguments, given).grid().counter_bytes;
}

void Operation::operator()(const Arguments& arguments, void* workspace, CUstream stream) const {
  const auto split = [&](size_t counters, size_t) -> Workspace {
    if (workspace == nullptr) return {};
    return {workspace, static_cast<char*>(workspace) + counters};
  };
  (*this)(arguments, split, stream);
}

void Operation::operator()(const Arguments& arguments, void* counters, void* partials, CUstream stream) const {
  (*this)(arguments, [&](size_t, size_t) { return Workspace{counters, partials}; }, stream);
}

void Operation::operator()(const Arguments& arguments, const FindWorkspace& find_workspace, CUstream stream) const {
  Given given;
  const Call& call = work_out(*device_, arguments, given);
  const cleave::GemmGrid grid = call.grid();
  if (grid.blocks == 0) return;
  refuse(find_missing(given));
  // Blocks that wait for each other would wait for ever if some could not start.
  if (cleave::ctas_wait(device_->kernel().config) && grid.blocks > device_->resident_blocks())
    throw std::runtime_error("too few of the kernel's blocks run at once; leave it the whole GPU");
  alignas(cleave::TensorMap) std::byte memory[kParamsBytes];
  cleave::GemmParams& params = call.make_params(given.arguments, memory);
  // Who brings the workspace may call other operations: `call` is no longer used.
  if (grid.counter_bytes > 0) {
    const Workspace workspace = find_workspace(grid.counter_bytes, grid.partial_bytes);
    if (workspace.counters == nullptr || workspace.partials == nullptr)
      throw std::invalid_argument("the workspace is a null pointer; pass workspace_size bytes");
    params.counters = static_cast<uint32_t*>(workspace.counters);
    params.partials = static_cast<float*>(workspace.partials);
  }
  device_->launch(memory, grid.blocks, stream);
}

}  // namespace emitted::operation
