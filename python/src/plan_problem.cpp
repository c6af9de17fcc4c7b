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
#include "plan_problem.h"
#include "problem/placement.h"
#include "problem/problem.h"
#include "problem/saturate.h"
#include "unlocked.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// Packed batches of row-major (or, transposed, column-major) matrices.
MatrixLayout packed(DType dtype, bool row_major, int64_t rows, int64_t cols, int64_t batch) {
  return {.dtype = dtype,
          .stride_row = row_major ? cols : 1,
          .stride_col = row_major ? 1 : rows,
          .stride_batch = batch == 1 ? 0 : saturating_product(rows, cols)};
}

MatrixLayout packed(DType dtype, bool row_major, const Placement& place) {
  return packed(dtype, row_major, place.rows, place.columns, place.batch);
}

/// A packed array, as TensorReader would see it.
Operand packed_scales(bool row_major, int64_t rows, int64_t cols, int64_t batch) {
  const MatrixLayout layout = packed(DType::f32, row_major, rows, cols, batch);
  return {.ndim = 3,
          .shape = {batch, rows, cols},
          .stride = {layout.stride_batch, layout.stride_row, layout.stride_col}};
}

void place_scaling(std::string_view text, GemmProblem& p) {
  const int64_t n = columns_of_b(p);
  const int64_t k_blocks = ceil_div(p.k, int64_t(kScaleBlock));
  const int64_t n_blocks = ceil_div(n, int64_t(kScaleBlock));
  const Scaling kind = text.starts_with("block") ? Scaling::block : Scaling::vector;
  const int64_t batch_a = entries_of_scale_a(p, kind), batch_b = entries_of_scale_b(p, kind);
  if (text == "none") return;
  if (text == "tensor") {
    place_scales({}, {}, {}, p);
  } else if (text == "row") {
    place_scales(packed_scales(true, p.m, 1, batch_a), packed_scales(true, 1, n, batch_b), {}, p);
  } else if (text == "block_1x128") {
    place_scales(packed_scales(false, p.m, k_blocks, batch_a),
                 packed_scales(true, k_blocks, n, batch_b), {}, p);
  } else if (text == "block_128x128") {
    place_scales(packed_scales(false, p.m, k_blocks, batch_a),
                 packed_scales(false, k_blocks, n_blocks, batch_b), {}, p);
  } else {
    refuse_value(
        "scaling is \"{}\"; it must be \"none\", \"tensor\", \"row\", \"block_1x128\" or "
        "\"block_128x128\"",
        text);
  }
}

/// Bounds of int32. What is left of D is zeroed where that means anything, as for a new D.
GroupLayout parse_groups(nb::handle grouping, nb::handle bounds, int64_t spacing) {
  const Grouping dimension = parse_grouping(grouping);
  if (dimension == Grouping::none) return {};
  return {.dimension = dimension,
          .bounds = parse_bounds(bounds),
          .spacing = spacing,
          .zero_rest = dimension != Grouping::k};
}

/// How arrays of the problem are read: matrices, and batches of them.
GemmOptions options_of(const GemmProblem& p) {
  if (p.groups.dimension == Grouping::none) return {.activation = p.activation};
  const bool aligned =
      p.groups.bounds == GroupBounds::aligned_ends || p.groups.bounds == GroupBounds::counts;
  return {.activation = p.activation,
          .grouped = true,
          .alignment = aligned ? std::optional(p.groups.spacing) : std::nullopt,
          .zero_rest = p.groups.zero_rest};
}

PlanObject plan_problem(int64_t m, int64_t n, int64_t k, int64_t batch, nb::handle dtype,
                        std::string_view layout, nb::handle out_dtype, nb::handle activation,
                        std::string_view bias, std::string_view scaling, nb::handle use_fast_accum,
                        nb::handle split_k_mode, nb::handle split_k_slices,
                        nb::handle deterministic, nb::handle kernel, nb::handle precision,
                        std::string_view device, nb::handle grouping, nb::handle bounds,
                        int64_t spacing) {
  const auto is_layout_letter = [](char letter) { return letter == 't' || letter == 'n'; };
  if (layout.size() != 2 || !is_layout_letter(layout[0]) || !is_layout_letter(layout[1])) {
    refuse_value("layout is \"{}\"; it must be \"tn\", \"nn\", \"nt\" or \"tt\"", layout);
  }
  const DType type = parse_dtype(dtype, "dtype");
  GemmProblem problem{.m = m,
                      .n = n,
                      .k = k,
                      .batch = batch,
                      .bias = parse_bias(bias),
                      .activation = parse_activation(activation),
                      .fast_accumulation = parse_flag(use_fast_accum, "use_fast_accum"),
                      .precision = parse_precision(precision),
                      .groups = parse_groups(grouping, bounds, spacing),
                      .split_k_mode = parse_split_k_mode(split_k_mode),
                      .split_k_slices = parse_split_k_slices(split_k_slices),
                      .deterministic = parse_flag(deterministic, "deterministic"),
                      .kernel = parse_kernel(kernel),
                      .device = parse_device(device)};
  problem.a = packed(type, layout[0] == 't', a_of(problem));
  problem.b = packed(type, layout[1] == 't', b_of(problem));
  place_scaling(scaling, problem);
  const DType d_type =
      out_dtype.is_none() ? default_output(problem) : parse_dtype(out_dtype, "out_dtype");
  problem.d = packed(d_type, true, d_of(problem));
  if (problem.bias != Bias::none) problem.bias_dtype = bias_type(problem);
  const Unlocked unlocked;
  return PlanObject(problem, options_of(problem), plan(problem));
}

}  // namespace

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

Bias parse_bias(std::string_view text) {
  if (text == "none") return Bias::none;
  if (text == "row") return Bias::row;
  if (text == "column") return Bias::column;
  refuse_value("bias is \"{}\"; it must be \"none\", \"row\" or \"column\"", text);
}

DType bias_type(const GemmProblem& p) {
  for (const DType type : {p.a.dtype, p.d.dtype}) {
    if (std::ranges::find(kFloatTypes, type) != kFloatTypes.end()) return type;
  }
  return DType::bf16;
}

void bind_plan_problem(nb::module_& m) {
  m.def("plan_problem", &plan_problem, "m"_a, "n"_a, "k"_a, nb::kw_only(), "batch"_a = 1,
        "dtype"_a = "bfloat16", "layout"_a = "tn", "out_dtype"_a = nb::none(),
        "activation"_a = "none", "bias"_a = "none", "scaling"_a = "none",
        "use_fast_accum"_a = false, "split_k_mode"_a = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a = true, "kernel"_a = "auto", "precision"_a = "tf32", "device"_a = "cuda",
        "grouping"_a = "none", "bounds"_a = "ends", "spacing"_a = 1, kPlanProblemDoc,
        nb::sig(kPlanProblemSignature));
}

}  // namespace cleave::python
