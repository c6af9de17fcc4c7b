// Planning without arrays, for tools that explain and compile on machines without a GPU.
#include <nanobind/stl/string_view.h>

#include <charconv>
#include <string_view>

#include "bindings.h"
#include "cleave/device.h"
#include "docs.h"
#include "errors.h"
#include "plan_object.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// "cpu", "cuda", "cuda:1", or "h100" to plan for one without having it.
int parse_device(std::string_view text) {
  if (text == "cpu") return kCpu;
  if (text == "h100") return kPlanOnlyH100;
  if (text == "cuda") return 0;
  int ordinal = -1;
  if (text.starts_with("cuda:")) {
    const auto [end, error] = std::from_chars(text.data() + 5, text.data() + text.size(), ordinal);
    if (error != std::errc() || end != text.data() + text.size()) ordinal = -1;
  }
  if (ordinal < 0)
    raise_value("device is \"{}\"; it must be \"cpu\", \"cuda\", \"cuda:<index>\" or \"h100\"",
                text);
  return ordinal;
}

/// Packed batches of row-major (or, transposed, column-major) matrices.
MatrixLayout packed(DType dtype, bool row_major, int64_t rows, int64_t cols, int64_t batch) {
  return {.dtype = dtype,
          .stride_row = row_major ? cols : 1,
          .stride_col = row_major ? 1 : rows,
          // Unsigned: sizes whose product overflows are refused by cleave::plan.
          .stride_batch = batch == 1 ? 0 : int64_t(uint64_t(rows) * uint64_t(cols))};
}

Bias parse_bias(std::string_view text) {
  if (text == "none") return Bias::none;
  if (text == "row") return Bias::row;
  if (text == "column") return Bias::column;
  raise_value("bias is \"{}\"; it must be \"none\", \"row\" or \"column\"", text);
}

PlanObject plan_problem(int64_t m, int64_t n, int64_t k, int64_t batch, nb::handle dtype,
                        std::string_view layout, nb::handle out_dtype, nb::handle activation,
                        std::string_view bias, nb::handle split_k_mode, nb::handle split_k_slices,
                        nb::handle deterministic, nb::handle kernel, std::string_view device) {
  const auto is_layout_letter = [](char letter) { return letter == 't' || letter == 'n'; };
  if (layout.size() != 2 || !is_layout_letter(layout[0]) || !is_layout_letter(layout[1])) {
    raise_value("layout is \"{}\"; it must be \"tn\", \"nn\", \"nt\" or \"tt\"", layout);
  }
  const DType type = parse_dtype(dtype, "dtype");
  const DType d_type = out_dtype.is_none() ? type : parse_dtype(out_dtype, "out_dtype");
  const Bias bias_shape = parse_bias(bias);
  const GemmProblem problem{
      .m = m,
      .n = n,
      .k = k,
      .batch = batch,
      .a = packed(type, layout[0] == 't', m, k, batch),
      .b = packed(type, layout[1] == 't', k, n, batch),
      .c = {},
      .d = packed(d_type, true, m, n, batch),
      .bias = bias_shape,
      .bias_dtype = bias_shape == Bias::none ? GemmProblem().bias_dtype : type,
      .activation = parse_activation(activation),
      .split_k_mode = parse_split_k_mode(split_k_mode),
      .split_k_slices = parse_split_k_slices(split_k_slices),
      .deterministic = parse_deterministic(deterministic),
      .kernel = parse_kernel(kernel),
      .device = parse_device(device)};
  nb::gil_scoped_release unlocked;
  return PlanObject(problem, plan(problem));
}

}  // namespace

void bind_plan_problem(nb::module_& m) {
  m.def("plan_problem", &plan_problem, "m"_a, "n"_a, "k"_a, nb::kw_only(), "batch"_a = 1,
        "dtype"_a = "bfloat16", "layout"_a = "tn", "out_dtype"_a = nb::none(),
        "activation"_a = "none", "bias"_a = "none", "split_k_mode"_a = "auto",
        "split_k_slices"_a = nb::none(), "deterministic"_a = true, "kernel"_a = "auto",
        "device"_a = "cuda", kPlanProblemDoc, nb::sig(kPlanProblemSignature));
}

}  // namespace cleave::python
