#include <algorithm>
#include <stdexcept>

#include "emitted/operation.h"

#include "call.h"
#include "device.h"
#include "launch/two_heights.h"

namespace emitted::operation {
namespace {

/// Calls `visit(given, device)` for each of a call's launches: for one, or for two that have the rows of a packed
/// weight between them, where whole waves of the first one's tiles leave some.
template <class Visit>
void visit_launches(const Given& given, const Device& device, const Device* rest, const Visit& visit) {
  const cleave::TileConfig& tile = device.kernel().config.tile;
  const auto& [p, x] = given;
  const int64_t rows = rest == nullptr ? 0 : cleave::rows_of_whole_waves(p, tile.m, tile.n, device.num_sms());
  if (rows == 0) return visit(given, device);
  visit(Given{cleave::part_of(p, rows), x}, device);
  visit(Given{cleave::part_of(p, p.n - rows), cleave::arguments_behind(p, rows, x)}, *rest);
}

}  // namespace

Operation::Operation(int device) : device_(std::make_unique<const Device>(device)) {
  if (device_->has_rest()) rest_ = std::make_unique<const Device>(device, true);
}
Operation::~Operation() = default;
Operation::Operation(Operation&&) noexcept = default;
Operation& Operation::operator=(Operation&&) noexcept = default;

std::string Operation::why_not(const Arguments& arguments) const {
  try {
    visit_launches(read(arguments), *device_, rest_.get(),
                   [](const Given& given, const Device& device) { Call::of(given, device); });
    return {};
  } catch (const std::invalid_argument& reason) {
    return reason.what();
  }
}

size_t Operation::workspace_size(const Arguments& arguments) const {
  size_t counters = 0, partials = 0;
  visit_launches(read(arguments), *device_, rest_.get(), [&](const Given& given, const Device& device) {
    const Call& call = Call::of(given, device);
    counters = std::max(counters, call.grid().counter_bytes);
    partials = std::max(partials, call.partial_bytes());
  });
  return counters + partials;
}

size_t Operation::counter_size(const Arguments& arguments) const {
  size_t counters = 0;
  visit_launches(read(arguments), *device_, rest_.get(), [&](const Given& given, const Device& device) {
    counters = std::max(counters, Call::of(given, device).grid().counter_bytes);
  });
  return counters;
}

void Operation::operator()(const Arguments& arguments, void* workspace, CUstream stream) const {
  const auto split = [&](size_t counters, size_t) -> Workspace {
    if (workspace == nullptr) return {};
    // Launches share the counters; partial results are behind those of both, which stay zero.
    return {workspace, static_cast<char*>(workspace) + (rest_ == nullptr ? counters : counter_size(arguments))};
  };
  (*this)(arguments, split, stream);
}

void Operation::operator()(const Arguments& arguments, void* counters, void* partials, CUstream stream) const {
  (*this)(arguments, [&](size_t, size_t) { return Workspace{counters, partials}; }, stream);
}

void Operation::operator()(const Arguments& arguments, const FindWorkspace& find_workspace, CUstream stream) const {
  visit_launches(read(arguments), *device_, rest_.get(),
                 [&](const Given& given, const Device& device) { enqueue(given, device, find_workspace, stream); });
}

}  // namespace emitted::operation
