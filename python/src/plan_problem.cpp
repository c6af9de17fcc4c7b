// Planning without arrays, for tools that explain and compile on machines without a GPU.
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "bindings.h"
#include "cleave/core/math.h"
#include "cleave/device.h"
#include "docs.h"
#include "errors.h"
#include "operands/scales.h"
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
    refuse_value("device is \"{}\"; it must be \"cpu\", \"cuda\", \"cuda:<index>\" or \"h100\"",
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
  refuse_value("bias is \"{}\"; it must be \"none\", \"row\" or \"column\"", text);
}

/// A packed array, as TensorReader would see it.
Operand packed_scales(bool row_major, int64_t rows, int64_t cols, int64_t batch) {
  const MatrixLayout layout = packed(DType::f32, row_major, rows, cols, batch);
  return {.ndim = 3,
          .shape = {batch, rows, cols},
          .stride = {layout.stride_batch, layout.stride_row, layout.stride_col}};
}

void place_scaling(std::string_view text, GemmProblem& p) {
  const int64_t k_blocks = ceil_div(p.k, int64_t(kScaleBlock));
  const int64_t n_blocks = ceil_div(p.n, int64_t(kScaleBlock));
  if (text == "none") return;
  if (text == "tensor") {
    place_scales({}, {}, p);
  } else if (text == "row") {
    place_scales(packed_scales(true, p.m, 1, p.batch), packed_scales(true, 1, p.n, p.batch), p);
  } else if (text == "block_1x128") {
    place_scales(packed_scales(false, p.m, k_blocks, p.batch),
                 packed_scales(true, k_blocks, p.n, p.batch), p);
  } else if (text == "block_128x128") {
    place_scales(packed_scales(false, p.m, k_blocks, p.batch),
                 packed_scales(false, k_blocks, n_blocks, p.batch), p);
  } else {
    refuse_value(
        "scaling is \"{}\"; it must be \"none\", \"tensor\", \"row\", \"block_1x128\" or "
        "\"block_128x128\"",
        text);
  }
}

/// The operands' type if a bias can have it, else D's, else bfloat16.
DType bias_type(const GemmProblem& p) {
  for (const DType type : {p.a.dtype, p.d.dtype}) {
    if (std::ranges::find(kFloatTypes, type) != kFloatTypes.end()) return type;
  }
  return DType::bf16;
}

PlanObject plan_problem(int64_t m, int64_t n, int64_t k, int64_t batch, nb::handle dtype,
                        std::string_view layout, nb::handle out_dtype, nb::handle activation,
                        std::string_view bias, std::string_view scaling, nb::handle use_fast_accum,
                        nb::handle split_k_mode, nb::handle split_k_slices,
                        nb::handle deterministic, nb::handle kernel, std::string_view device) {
  const auto is_layout_letter = [](char letter) { return letter == 't' || letter == 'n'; };
  if (layout.size() != 2 || !is_layout_letter(layout[0]) || !is_layout_letter(layout[1])) {
    refuse_value("layout is \"{}\"; it must be \"tn\", \"nn\", \"nt\" or \"tt\"", layout);
  }
  const DType type = parse_dtype(dtype, "dtype");
  GemmProblem problem{.m = m,
                      .n = n,
                      .k = k,
                      .batch = batch,
                      .a = packed(type, layout[0] == 't', m, k, batch),
                      .b = packed(type, layout[1] == 't', k, n, batch),
                      .c = {},
                      .d = {},
                      .bias = parse_bias(bias),
                      .activation = parse_activation(activation),
                      .fast_accumulation = parse_flag(use_fast_accum, "use_fast_accum"),
                      .split_k_mode = parse_split_k_mode(split_k_mode),
                      .split_k_slices = parse_split_k_slices(split_k_slices),
                      .deterministic = parse_flag(deterministic, "deterministic"),
                      .kernel = parse_kernel(kernel),
                      .device = parse_device(device)};
  place_scaling(scaling, problem);
  const DType d_type =
      out_dtype.is_none() ? default_output(problem) : parse_dtype(out_dtype, "out_dtype");
  problem.d = packed(d_type, true, m, n, batch);
  if (problem.bias != Bias::none) problem.bias_dtype = bias_type(problem);
  nb::gil_scoped_release unlocked;
  return PlanObject(problem, plan(problem));
}

}  // namespace

void bind_plan_problem(nb::module_& m) {
  m.def("plan_problem", &plan_problem, "m"_a, "n"_a, "k"_a, nb::kw_only(), "batch"_a = 1,
        "dtype"_a = "bfloat16", "layout"_a = "tn", "out_dtype"_a = nb::none(),
        "activation"_a = "none", "bias"_a = "none", "scaling"_a = "none",
        "use_fast_accum"_a = false, "split_k_mode"_a = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a = true, "kernel"_a = "auto", "device"_a = "cuda", kPlanProblemDoc,
        nb::sig(kPlanProblemSignature));
}

}  // namespace cleave::python
