#include "product/check_offsets.h"

#include <cstddef>
#include <vector>

#include "base/refuse.h"
#include "operands/check_bounds.h"
#include "problem/placement.h"
#include "runtime/context.h"
#include "runtime/driver.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

/// What `data` on the device holds, once the work on `stream` is done.
std::vector<std::byte> fetch(const Placement& place, const void* data, CUstream stream) {
  std::vector<std::byte> bytes(size_t(place.columns) * size_of(place.layout.dtype));
  if (bytes.empty()) return bytes;
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  check(driver().memcpy_dtoh_async(bytes.data(), address, bytes.size(), stream), "cuMemcpyDtoHAsync");
  check(driver().stream_synchronize(stream), "cuStreamSynchronize");
  return bytes;
}

}  // namespace

void check_offsets(const GemmOperands& operands, void* stream) {
  const GemmProblem& p = operands.problem;
  const GemmArguments& arguments = operands.arguments;
  if (p.groups.dimension == Grouping::none) return;
  if (p.device == kCpu) return check_bounds(p, arguments.group_offsets, arguments.group_sizes);

  const nb::gil_scoped_release unlocked;
  const ContextGuard guard(p.device);
  const auto handle = static_cast<CUstream>(stream);
  if (is_capturing(handle)) {
    refuse(ErrorCode::capture,
           "check_offsets waits for the GPU, which a stream that is being captured forbids; check before the capture");
  }
  const auto offsets = fetch(group_offsets_of(p), arguments.group_offsets, handle);
  const auto sizes = fetch(group_sizes_of(p), arguments.group_sizes, handle);
  check_bounds(p, offsets.data(), sizes.data());
}

}  // namespace cleave::python
