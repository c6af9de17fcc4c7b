#include "launch.h"

#include "errors.h"
#include "values.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

/// Size and alignment are for GemmPlan::run to check.
Workspace read_workspace(const TensorView& view, int device) {
  if (view.device != device) {
    refuse_value("workspace is on {}, but the product runs on {}", device_text(view.device),
                 device_text(device));
  }
  if (view.ndim != 1 || (view.shape[0] > 1 && view.stride[0] != 1)) {
    refuse_value("workspace is {}; it must be one-dimensional and contiguous", shape_text(view));
  }
  if (view.readonly) refuse_value("workspace is read-only; pass an array that can be written");
  return {view.data, size_t(view.shape[0]) * view.element.bits * view.element.lanes / 8};
}

}  // namespace

void set_scalars(const LaunchOptions& options, ProductCall& call) {
  std::optional<float> beta;
  if (!options.beta.is_none()) beta = parse_scalar(options.beta, "beta");
  cleave::set_scalars(parse_scalar(options.alpha, "alpha"), beta, call);
}

void launch(const GemmPlan& plan, const ProductCall& call, const LaunchOptions& options,
            TensorReader& reader, bool warm) {
  TensorView view;
  Workspace workspace;
  if (!options.workspace.is_none()) {
    view = reader.read(options.workspace, "workspace");
    workspace = read_workspace(view, call.problem.device);
  }
  const auto run = [&] {
    plan.run(call.arguments, workspace.data, workspace.bytes, reader.stream());
  };
  if (warm && call.problem.device != kCpu) return run();
  nb::gil_scoped_release unlocked;
  run();
}

}  // namespace cleave::python
