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
    raise_value("workspace is on {}, but the product runs on {}", device_text(view.device),
                device_text(device));
  }
  if (view.ndim != 1 || (view.shape[0] > 1 && view.stride[0] != 1)) {
    raise_value("workspace is {}; it must be one-dimensional and contiguous", shape_text(view));
  }
  if (view.readonly) raise_value("workspace is read-only; pass an array that can be written");
  return {view.data, size_t(view.shape[0]) * view.dtype.bits * view.dtype.lanes / 8};
}

}  // namespace

void set_scalars(const LaunchOptions& options, GemmOperands& operands) {
  const bool has_c = operands.problem.has_c;
  operands.arguments.alpha = parse_scalar(options.alpha, "alpha");
  operands.arguments.beta = has_c ? 1.0f : 0.0f;
  if (options.beta.is_none()) return;
  operands.arguments.beta = parse_scalar(options.beta, "beta");
  if (!has_c && operands.arguments.beta != 0.0f) {
    raise_value("beta is {} but there is no c; pass c (c=out adds to out in place)",
                operands.arguments.beta);
  }
}

void launch(const GemmPlan& plan, const GemmOperands& operands, const LaunchOptions& options,
            TensorReader& reader, bool warm) {
  TensorView view;
  Workspace workspace;
  if (!options.workspace.is_none()) {
    view = reader.read(options.workspace, "workspace");
    workspace = read_workspace(view, operands.problem.device);
  }
  const auto run = [&] {
    plan.run(operands.arguments, workspace.data, workspace.bytes, reader.stream());
  };
  if (warm && operands.problem.device != kCpu) return run();
  nb::gil_scoped_release unlocked;
  run();
}

}  // namespace cleave::python
