// Planning without arrays, for tools that explain and compile on machines without a GPU.
#include <algorithm>
#include <charconv>
#include <string_view>

#include "call/define.h"
#include "call/mistakes.h"
#include "call/values.h"
#include "cleave/core/math.h"
#include "cleave/core/saturate.h"
#include "cleave/device.h"
#include "inputs/epilogue.h"
#include "inputs/options.h"
#include "launch/packed_weight.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "operands/group_bounds.h"
#include "operands/scales.h"
#include "problem/placement.h"
#include "problem/problem.h"
#include "product/plan_problem.h"
#include "product/product.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

constexpr const char* kPlanProblemDoc =
    R"(Plans a product of packed matrices from its sizes alone.

Args:
    m, n, k: the sizes.
    layout: a letter for A and one for B, as in BLAS, whose matrices are column-major: "tn" has K
        contiguous in both (A row-major, B column-major), "tt" has both row-major.
    bias: "none", "row" or "column".
    scaling: what shares a scale of 8-bit operands: "none" (they are unscaled), "tensor", "row" (rows
        of A, columns of B), or "block_1x128" or "block_128x128", which are B's blocks; A's are 1x128
        and stored by column. B's scales are stored by column if its blocks are 1x128, else by K.
    epilogue: a function called with the dtypes of its arrays, as in gelu_residual(bias="bfloat16",
        scale=0.5, residual="float16").
    device: "cpu", "cuda", "cuda:<index>", or "h100" or "h200" to plan for one on any machine.
    grouping: "m", "n" or "k" for `batch` groups of that dimension, whose int32 bounds are given as
        bounds says: "ends", "indptr", "starts", "aligned_ends" or "counts"; groups of the latter two
        begin at multiples of spacing. expected_m is as in `grouped_gemm`. Matrices that `grouped_gemm`
        takes one per group are packed.
    weights: "int4", "mxfp4" or "nvfp4" for a packed weight as B, with groups of group_size columns
        (None: the format's usual 128, 32 or 16; -1: whole rows), and with zero points if zeros is True;
        scaling is A's alone then.
    accumulate: True adds to D, which is C as well.

The other arguments, and the errors, are those of `gemm`.)";

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
  return {
      .ndim = 3, .shape = {batch, rows, cols}, .stride = {layout.stride_batch, layout.stride_row, layout.stride_col}};
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
    place_scales(packed_scales(false, p.m, k_blocks, batch_a), packed_scales(true, k_blocks, n, batch_b), {}, p);
  } else if (text == "block_128x128") {
    place_scales(packed_scales(false, p.m, k_blocks, batch_a), packed_scales(false, k_blocks, n_blocks, batch_b), {},
                 p);
  } else {
    refuse_value(
        "scaling is \"{}\"; it must be \"none\", \"tensor\", \"row\", \"block_1x128\" or "
        "\"block_128x128\"{}",
        text, near_name(std::string(text), {"none", "tensor", "row", "block_1x128", "block_128x128"}));
  }
}

/// Packs D's scales. D's own place is settled.
template <class Call>
void place_scale_out(const Call& call, GemmProblem& p, GemmOptions& options) {
  call.template read<arg::OutScale>(options.out_scale);
  call.template read<arg::ScaleMajor>(options.scale_major);
  call.template read<arg::UseUe8m0>(options.ue8m0);
  p.ue8m0_scale_out = options.ue8m0;
  if (!options.out_scale) return refuse_scale_major(options);
  check_out_scale(*options.out_scale);
  const int64_t blocks = ceil_div(p.n, int64_t(kScaleBlock));
  const MatrixLayout scales = packed(DType::f32, options.scale_major == Major::k, p.m, blocks, entries_of_d(p));
  p.scale_out = {.kind = Scaling::block,
                 .stride_row = scales.stride_row,
                 .stride_k = scales.stride_col,
                 .stride_batch = scales.stride_batch};
}

using GroupSize = Integer<"group_size", "None", "int | None", "an integer or None">;
using HasZeros = Flag<"zeros", "False">;

/// Makes a packed weight of B, which is placed as a matrix of its elements.
template <class Call>
std::optional<WeightForm> make_weight(const Call& call, std::string_view layout, GemmProblem& p) {
  WeightForm form{.format = WeightFormat::none, .out_features = p.n};
  call.template read<arg::WeightKind>(form.format);
  bool zeros = false;
  call.template read<HasZeros>(zeros);
  if (form.format == WeightFormat::none) {
    if (zeros || !call.template get<GroupSize>().is_none()) {
      refuse_value(
          "group_size or zeros is given, but weights is \"none\"; pass the format of B's codes, or leave it out");
    }
    return std::nullopt;
  }
  if (layout[1] != 'n')
    refuse_value("layout is \"{}\", but B is a packed weight, whose letter is n; pass \"tn\" or \"nn\"", layout);
  form.group_size = usual_group(form.format);
  call.template read<GroupSize>(form.group_size);
  if (form.group_size == -1) form.group_size = p.k;
  p.weights_b = {.format = form.format, .has_zero = zeros, .group = form.group_size};
  p.scale_b = {};  // scaling is of A's rows
  place_packed_weight(p);
  return form;
}

using M = Integer<"m">;
using N = Integer<"n">;
using K = Integer<"k">;
using Batch = Integer<"batch", "1">;
using Layout = Word<"layout", "'tn'">;
using Scaled = Word<"scaling", "'none'">;
using GroupedDimension = OneOf<"grouping", Grouping, "'none'">;
using BoundsKind = OneOf<"bounds", GroupBounds, "'ends'">;
using Spacing = Integer<"spacing", "1">;

/// Bounds of int32. What is left of D is zeroed where that means anything, as for a new D.
template <class Call>
GroupLayout parse_groups(const Call& call) {
  GroupLayout groups;
  call.template read<GroupedDimension>(groups.dimension);
  call.template read<BoundsKind>(groups.bounds);
  call.template read<Spacing>(groups.spacing);
  const bool spaced = groups.bounds == GroupBounds::aligned_ends || groups.bounds == GroupBounds::counts;
  if (groups.dimension == Grouping::none) {
    if (groups.bounds == GroupBounds::ends && groups.spacing == 1) return {};
    refuse_value("bounds is \"{}\" and spacing {}, but grouping is \"none\"; pass what is grouped, or leave them out",
                 to_string(groups.bounds), groups.spacing);
  }
  if (!spaced && groups.spacing != 1)
    refuse_value(
        "spacing is {}, but bounds is \"{}\", of groups that begin anywhere; leave it out, or pass "
        "\"aligned_ends\" or \"counts\"",
        groups.spacing, to_string(groups.bounds));
  groups.zero_rest = groups.dimension != Grouping::k;
  return groups;
}

/// How arrays of the problem are read: matrices, and batches of them.
GemmOptions options_of(const GemmProblem& p, Activation activation, const PlanOptions& plan) {
  if (p.groups.dimension == Grouping::none) return {.activation = activation, .plan = plan};
  const bool aligned = p.groups.bounds == GroupBounds::aligned_ends || p.groups.bounds == GroupBounds::counts;
  return {.activation = activation,
          .grouped = true,
          .alignment = aligned ? std::optional(p.groups.spacing) : std::nullopt,
          .zero_rest = p.groups.zero_rest,
          .expected_m = p.groups.expected_m > 0 ? std::optional(p.groups.expected_m) : std::nullopt,
          .plan = plan};
}

template <class Call>
PlanObject plan_problem(const Call& call) {
  const std::string_view layout = Layout::parse(call.template get<Layout>());
  const auto is_layout_letter = [](char letter) { return letter == 't' || letter == 'n'; };
  if (layout.size() != 2 || !is_layout_letter(layout[0]) || !is_layout_letter(layout[1])) {
    refuse_value("layout is \"{}\"; it must be \"tn\", \"nn\", \"nt\" or \"tt\"", layout);
  }
  GemmProblem problem;
  call.template read<M>(problem.m);
  call.template read<N>(problem.n);
  call.template read<K>(problem.k);
  call.template read<Batch>(problem.batch);
  call.template read<arg::BiasKind>(problem.bias);
  Activation activation = Activation::none;
  call.template read<arg::Activation>(activation);
  problem.groups = parse_groups(call);
  std::optional<int64_t> expected_m;
  call.template read<arg::ExpectedM>(expected_m);
  if (expected_m) problem.groups.expected_m = read_expected_m(*expected_m, problem);
  problem.device = parse_device(arg::Device::parse(call.template get<arg::Device>()));
  const PlanOptions options = parse_plan_options(call);
  set_plan_options(options, problem);

  const EpilogueArguments epilogue(call.template get<arg::Epilogue>(), {});
  problem.epilogue = epilogue.function_or(activation);
  const DType type = arg::OperandDtype::parse(call.template get<arg::OperandDtype>());
  problem.a = packed(type, layout[0] == 't', a_of(problem));
  problem.b = packed(type, layout[1] == 't', b_of(problem));
  place_scaling(Scaled::parse(call.template get<Scaled>()), problem);
  const std::optional<WeightForm> weights = make_weight(call, layout, problem);
  DType d_type = epilogue.type_of_d().value_or(default_output(problem));
  call.template read<arg::OutDtype>(d_type);
  problem.d = packed(d_type, true, d_of(problem));
  if (problem.bias != Bias::none) problem.bias_dtype = bias_type(problem);
  epilogue.place_types(problem);
  call.template read<arg::Accumulate>(problem.has_c);
  if (problem.has_c) problem.c = problem.d;
  GemmOptions reading = options_of(problem, activation, options);
  reading.weights = weights;
  place_scale_out(call, problem, reading);
  return PlanObject(problem, reading, make_plan(problem), backward_of(call.template get<arg::Epilogue>()));
}

}  // namespace

int parse_device(std::string_view text) {
  if (text == "cpu") return kCpu;
  if (text == "h100") return kPlanOnlyH100;
  if (text == "h200") return kPlanOnlyH200;
  if (text == "cuda") return 0;
  int ordinal = -1;
  if (text.starts_with("cuda:")) {
    const auto [end, error] = std::from_chars(text.data() + 5, text.data() + text.size(), ordinal);
    if (error != std::errc() || end != text.data() + text.size()) ordinal = -1;
  }
  if (ordinal < 0)
    refuse_value("device is \"{}\"; it must be \"cpu\", \"cuda\", \"cuda:<index>\", \"h100\" or \"h200\"", text);
  return ordinal;
}

DType bias_type(const GemmProblem& p) {
  for (const DType type : {p.a.dtype, p.d.dtype}) {
    if (std::ranges::find(kFloatTypes, type) != kFloatTypes.end()) return type;
  }
  return DType::bf16;
}

void bind_plan_problem(nb::module_& m) {
  using Options = Concat<List<Batch, arg::OperandDtype, Layout, arg::OutDtype, arg::BiasKind, arg::Activation,
                              arg::Epilogue, Scaled, arg::OutScale, arg::ScaleMajor, arg::UseUe8m0, arg::UseFastAccum>,
                         SplitK,
                         List<arg::Precision, arg::StaticB, arg::Device, GroupedDimension, BoundsKind, Spacing,
                              arg::ExpectedM, arg::WeightKind, GroupSize, HasZeros, arg::Accumulate>>;
  define(m, "plan_problem", List<M, N, K>(), Options(), "GemmPlan", kPlanProblemDoc,
         [](const auto& call) { return plan_problem(call); });
}

}  // namespace cleave::python
