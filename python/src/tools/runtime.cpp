// Devices, driver, compiler, and the state of the process.
#include <nanobind/stl/string.h>

#include "array/stream.h"
#include "call/values.h"
#include "cleave/device.h"
#include "cleave/gemm.h"
#include "cpu/thread_team.h"
#include "jit/nvrtc.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "runtime/driver.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

Fields device_dict(int device) {
  const DeviceInfo& found = device_info(device);
  nb::dict info;
  info["name"] = found.name;
  info["compute_capability"] = found.compute_capability;
  info["multiprocessors"] = found.num_sms;
  info["shared_memory_per_block"] = found.shared_memory_per_block;
  info["l2_bytes"] = found.l2_bytes;
  info["memory_gb_per_s"] = found.memory_gb_per_s;
  info["clock_ghz"] = found.clock_ghz;
  info["memory_bytes"] = found.memory_bytes;
  return info;
}

Fields driver_info() {
  const int version = driver_version();
  nb::dict info;
  info["version"] = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  return info;
}

Fields nvrtc_info() {
  const NvrtcVersion version = nvrtc_version();
  nb::dict info;
  info["version"] = fmt::format("{}.{}", version.major, version.minor);
  info["path"] = nvrtc_path();
  return info;
}

const char* sum_order_name() {
  return default_determinism() == Determinism::k_order ? "k" : nullptr;
}

void set_default_promise(bool batch_invariant, nb::handle sum_order) {
  Determinism promised = batch_invariant ? Determinism::batch_invariant : Determinism::repeatable;
  if (!sum_order.is_none()) promised = parse_sum_order(sum_order, "sum_order");
  set_default_determinism(promised);
}

}  // namespace

void bind_runtime(nb::module_& m) {
  m.def("device_count", &device_count, "The number of usable CUDA devices; 0 without a GPU or driver.");
  m.def("device_info", &device_dict, "device"_a,
        "Name, compute_capability (90 for an H100), multiprocessors and more of a CUDA device.");
  m.def("release_workspaces", &release_workspaces,
        "Frees every pooled workspace; graphs captured with them must not be replayed.");
  m.def("driver_info", &driver_info, "The newest CUDA version that the driver supports. Raises CudaError without one.");
  m.def("nvrtc_info", &nvrtc_info, "NVRTC's version and path. Raises CudaError without one.");
  m.def(
      "batch_invariant", [] { return default_determinism() >= Determinism::batch_invariant; },
      "Whether products that say nothing of it are batch invariant.");
  m.def(
      "default_promise",
      [] { return nb::make_tuple(default_determinism() >= Determinism::batch_invariant, sum_order_name()); },
      "The arguments of set_default_promise.");
  m.def("set_default_promise", &set_default_promise, "batch_invariant"_a, "sum_order"_a.none(),
        "What products that say nothing of it are promised, in the whole process.");
  m.def("cpu_threads", &cpu::available_threads, "The number of threads that the CPU backend uses.");
  m.def(
      "synchronize", [](int device, nb::handle stream) { synchronize(device, parse_stream(stream).value_or(nullptr)); },
      "device"_a, "stream"_a, "Blocks until the work of `stream` is done.");
  m.def("add_library_search_path", &add_library_search_path, "directory"_a,
        "A further directory to look for libnvrtc in.");
}

}  // namespace cleave::python
