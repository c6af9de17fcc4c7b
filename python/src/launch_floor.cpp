// The least that a launch costs its caller, which the benchmark sets beside what calls cost.
#include <chrono>

#include "bindings.h"
#include "errors.h"
#include "runtime/context.h"
#include "runtime/kernel_cache.h"
#include "stream.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// Microseconds per launch of a kernel that does nothing, as plans launch theirs.
double launch_floor(int device, int calls, nb::handle stream) {
  const auto cuda_stream = static_cast<CUstream>(parse_stream(stream).value_or(nullptr));
  const ContextGuard context(device);
  const Kernel& kernel = load_kernel({.source = "extern \"C\" __global__ void cleave_empty(int) {}",
                                      .entry = "cleave_empty",
                                      .device = device,
                                      .limits = {}});
  const LaunchShape shape{.block = {32, 1, 1}, .programmatic = true};
  const int parameter = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) kernel.launch(shape, cuda_stream, &parameter);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
}

}  // namespace

void bind_launch_floor(nb::module_& m) {
  m.def("launch_floor", &launch_floor, "device"_a, "calls"_a, "stream"_a,
        "Microseconds of host time per launch of a kernel that does nothing.",
        nb::sig("def launch_floor(device: int, calls: int, stream: object) -> float"));
}

}  // namespace cleave::python
