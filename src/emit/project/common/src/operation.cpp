#include <stdexcept>

#include "emitted/operation.h"

#include "call.h"
#include "device.h"

namespace emitted::operation {

Operation::Operation(int device) : device_(std::make_unique<const Device>(device)) {}
Operation::~Operation() = default;
Operation::Operation(Operation&&) noexcept = default;
Operation& Operation::operator=(Operation&&) noexcept = default;

std::string Operation::why_not(const Arguments& arguments) const {
  try {
    Call::of(read(arguments), *device_);
    return {};
  } catch (const std::invalid_argument& reason) {
    return reason.what();
  }
}

size_t Operation::workspace_size(const Arguments& arguments) const {
  const Call& call = Call::of(read(arguments), *device_);
  return call.grid().counter_bytes + call.partial_bytes();
}

size_t Operation::counter_size(const Arguments& arguments) const {
  return Call::of(read(arguments), *device_).grid().counter_bytes;
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
  enqueue(read(arguments), *device_, find_workspace, stream);
}

}  // namespace emitted::operation
