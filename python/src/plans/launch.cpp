#include "plans/launch.h"

#include "array/stream.h"
#include "module/errors.h"
#include "runtime/kernel_cache.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

/// Size and alignment are for GemmPlan::run to check.
Workspace read_workspace(nb::handle array, int device, TensorReader& reader) {
  if (!given(array)) return {};
  const TensorView view = reader.read_output(array, arg::Workspace::name());
  if (view.device != device) {
    refuse_value("workspace is on {}, but the product runs on {}", device_text(view.device), device_text(device));
  }
  if (view.ndim != 1 || (view.shape[0] > 1 && view.stride[0] != 1)) {
    refuse_value("workspace is {}; it must be one-dimensional and contiguous", shape_text(view));
  }
  return {view.data, size_t(view.shape[0]) * view.element.bits * view.element.lanes / 8};
}

}  // namespace

void set_scalars(const CallArguments& arguments, ProductCall& call) {
  float alpha = 1.0f;
  std::optional<float> beta;
  arguments.read<arg::Alpha>(alpha);
  arguments.read<arg::Beta>(beta);
  cleave::set_scalars(alpha, beta, call);
}

std::string arch_of(int device) {
  return device == kCpu ? "" : device_arch(device);
}

void prepare(const Plan& plan, nb::handle stream) {
  void* handle = parse_stream(stream).value_or(nullptr);
  const nb::gil_scoped_release unlocked;
  plan.prepare(handle);
}

void launch(const GemmPlan& plan, const ProductCall& call, const CallArguments& arguments, TensorReader& reader) {
  const Workspace workspace = read_workspace(arguments.get<arg::Workspace>(), call.problem.device, reader);
  {
    const nb::gil_scoped_release unlocked;
    plan.run(call.arguments, workspace.data, workspace.bytes, reader.stream());
  }
  reader.mark_written();
}

}  // namespace cleave::python
