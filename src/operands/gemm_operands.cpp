#include "operands/gemm_operands.h"

#include <algorithm>
#include <limits>

#include "base/refuse.h"
#include "cleave/core/math.h"
#include "cleave/names.h"
#include "operands/epilogue_operands.h"
#include "operands/group_bounds.h"
#include "operands/packed.h"
#include "operands/scales.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// Fills a GemmCall, tensor by tensor.
class Builder {
 public:
  Builder(const GemmTensors& tensors, const GemmOptions& options, GemmCall& call)
      : t_(tensors),
        options_(options),
        call_(call),
        p_(call.problem),
        arguments_(call.arguments),
        a_(*tensors.a),
        b_(options.weights ? unpacked(*tensors.b, *options.weights, a_) : *tensors.b) {}

  void check_operands() const {
    const Operand &a = *t_.a, &b = b_;
    const bool apart = options_.grouped && a.ndim == 1 && b.ndim == 1;
    const Form form{apart ? 1 : 2, 3, kMultipliedTypes};
    check(a, "a", form);
    check(b, "b", form);
    if (a.dtype != b.dtype && !(is_fp8(a.dtype) && is_fp8(b.dtype))) {
      refuse_type("a is {} and b is {}; convert one of them", to_string(a.dtype), to_string(b.dtype));
    }
  }

  void place_groups() {
    const std::optional<DescribedGroups> given = read_bounds(t_, options_.alignment, t_.a->device);
    if (!given) {
      if (a_.ndim == 3 && b_.ndim == 3) return;
      refuse_value(
          "offs is missing, and a is {} and b is {}; pass offs, indptr, or starts with sizes, or batches of matrices "
          "of both",
          shape_text(a_), shape_text(b_));
    }
    p_.groups = given->layout;
    if (a_.ndim == 1) {
      place_apart();
    } else if (a_.ndim == 3 && b_.ndim == 3) {
      stack_operands(given->count);
    } else if (t_.counts && !options_.alignment) {
      refuse_value(
          "counts is given, but a is {} and b is {}; pass batches of both, or the distance from one group's begin to "
          "the next one's as alignment",
          shape_text(a_), shape_text(b_));
    }
    p_.batch = given->count;
    p_.groups.dimension = grouped_dimension();
    const bool has_rest = p_.groups.dimension != Grouping::k;
    p_.groups.zero_rest = options_.zero_rest ? *options_.zero_rest : has_rest && makes_outputs();
    call_.batched |= p_.groups.dimension == Grouping::k;
    check_entries("a", a_);
    check_entries("b", b_);
    arguments_.group_offsets = given->offsets;
    arguments_.group_sizes = given->sizes;
  }

  void place_gather() {
    if (!t_.gather) {
      if (options_.top_k != 1) refuse_value("top_k is {}, but there is no gather; leave it out", options_.top_k);
      return;
    }
    const Operand& gather = *t_.gather;
    if (!options_.grouped || p_.groups.dimension != Grouping::m || a_.ndim != 2) {
      refuse_value("gather is given, and a is {} and b is {}; it names rows of a matrix a, where b is (G, K, N)",
                   shape_text(a_), shape_text(b_));
    }
    if (options_.top_k < 1) refuse_value("top_k is {}; it must be at least 1", options_.top_k);
    check(gather, "gather", {1, 1, kInt32});
    packed_count(gather, "gather");
    p_.gather = {.given = true, .rows = a_.rows(), .divisor = options_.top_k};
    arguments_.gather = static_cast<const int32_t*>(gather.data);
  }

  void place_matrices() {
    if (options_.a_is_transposed) a_ = transposed(a_);
    if (a_.columns() != b_.rows()) {
      refuse_value("a is {} and b is {}: a's columns ({}) must match b's rows ({}){}", shape_text(a_), shape_text(b_),
                   a_.columns(), b_.rows(), a_.columns() == b_.columns() ? "; transpose b" : "");
    }
    if (p_.groups.dimension == Grouping::none) {
      if (a_.batch() != b_.batch() && a_.batch() != 1 && b_.batch() != 1) {
        refuse_value("a is {} and b is {}: their batches ({} and {}) must be equal, or one of them 1", shape_text(a_),
                     shape_text(b_), a_.batch(), b_.batch());
      }
      call_.batched = a_.ndim == 3 || b_.ndim == 3;
      p_.batch = a_.batch() == 1 ? b_.batch() : a_.batch();
    }
    p_.epilogue = epilogue_for(options_.activation, t_.epilogue.function);
    const bool joined = is_gated(p_);
    if (joined && b_.columns() % 2 != 0) {
      refuse_value("b is {}, but {}, which joins two columns; pass as many up columns after the gate columns",
                   shape_text(b_), gate_of(p_));
    }
    p_.m = t_.gather ? t_.gather->shape[0] : a_.rows();
    if (options_.expected_m && p_.groups.dimension != Grouping::none)
      p_.groups.expected_m = read_expected_m(*options_.expected_m, p_);
    p_.n = joined ? b_.columns() / 2 : b_.columns();
    p_.k = a_.columns();
    p_.a = layout_of(a_, "a");
    p_.b = layout_of(b_, "b");
    if (p_.groups.apart) p_.b.stride_row = 1, p_.b.stride_col = p_.k;  // of nothing, too, which would be row-major
    p_.device = a_.device;
    arguments_.a = a_.data;
    arguments_.b = b_.data;
  }

  void place_c() {
    const Operand& c = *t_.c;
    check(c, "c", {2, 3, kAnyType});
    if (!has_shape_of_d(c, !call_.stacks_rows())) {
      refuse_value("c is {}; it must be {}", shape_text(c), shape_of_d());
    }
    p_.has_c = true;
    p_.c = layout_like_d(c, "c", false);
    arguments_.c = c.data;
  }

  void place_bias() {
    const Operand& bias = *t_.bias;
    check(bias, "bias", {1, 2, kFloatTypes});
    const int64_t n = columns_of_b(p_);
    // One vector for each group, along a dimension that they all have in full.
    const bool rows_grouped = p_.groups.dimension == Grouping::n;
    const int64_t length = rows_grouped ? p_.m : n;
    const bool by_group = options_.grouped && bias.ndim == 2 && bias.rows() == p_.batch && bias.columns() == length;
    const bool row = bias.ndim == 1 ? bias.shape[0] == n : bias.rows() == 1 && bias.columns() == n;
    const bool column = bias.ndim == 2 && bias.rows() == p_.m && bias.columns() == 1;
    if (!by_group && !row && !column) {
      refuse_value(
          "bias is {}; it must be ({},) or (1, {}), one value per column of {}, or ({}, 1), one per row{}",
          shape_text(bias), n, n, n == p_.n ? "D" : "b", p_.m,
          options_.grouped ? fmt::format(", or ({}, {}), such a vector for each group", p_.batch, length) : "");
    }
    p_.bias = (by_group ? !rows_grouped : row) ? Bias::row : Bias::column;
    p_.bias_dtype = bias.dtype;
    if (by_group && p_.batch > 1) p_.bias_stride_batch = bias.stride[0];
    const int along = by_group || row ? bias.ndim - 1 : 0;
    if (bias.shape[along] > 1 && bias.stride[along] != 1) {
      refuse_value("bias has a stride of {}; it must be contiguous, pass a copy", bias.stride[along]);
    }
    arguments_.bias = bias.data;
  }

  void place_scale_factors() {
    constexpr Form kForm{0, 3, kFloat32};
    if (!options_.weights) check_both_scales(t_.scale_a, t_.scale_b);
    check(*t_.scale_a, "scale_a", kForm);
    arguments_.scale_a = static_cast<const float*>(t_.scale_a->data);
    const bool stacked_rows = call_.stacks_rows() && t_.scale_a->ndim > 1 && line_length(*t_.scale_a) != 1;
    int64_t gap = 0;
    if (stacked_rows) check_entries_of_scales();
    const Operand scale_a = stacked_rows ? stacked_apart(*t_.scale_a, gap) : *t_.scale_a;
    const ScaleForm form{.a_by_group = options_.grouped && (a_.ndim == 3 || b_.ndim == 2),
                         .b_by_group = options_.grouped && (b_.ndim == 3 || a_.ndim == 2),
                         .a_is_transposed = options_.a_is_transposed};
    if (options_.weights) {
      place_row_scales(scale_a, form, p_);
    } else {
      check(*t_.scale_b, "scale_b", kForm);
      arguments_.scale_b = static_cast<const float*>(t_.scale_b->data);
      place_scales(scale_a, *t_.scale_b, form, p_);
    }
    if (stacked_rows) p_.scale_a.stride_batch = gap;
  }

  void check_entries_of_scales() const {
    const Operand& scale_a = *t_.scale_a;
    const int64_t rows = p_.m / max_of<int64_t>(p_.batch, 1);
    if (scale_a.shape[0] == p_.batch && scale_a.shape[1] == rows) return;
    refuse_value("scale_a is {0}; with counts it must have scales for each group's rows, ({1}, {2}) or ({1}, {2}, {3})",
                 shape_text(scale_a), p_.batch, rows, ceil_div<int64_t>(p_.k, kScaleBlock));
  }

  void place_zero_points() {
    if (!t_.azp_adj) {
      refuse_value("azp is given without azp_adj; pass the sums of b's columns as azp_adj");
    }
    if (t_.azp) arguments_.zero_a = line(*t_.azp, "azp", p_.m);
    arguments_.zero_b = line(*t_.azp_adj, "azp_adj", p_.n);
    p_.has_zero = true;
  }

  void place_d() {
    const std::optional<DType> d_type = asked_type(options_.d_type, t_.epilogue.function);
    if (!t_.out) {
      const int64_t entries = call_.batched && !call_.stacks_rows() ? p_.batch : 1;
      p_.d = packed_layout(d_type.value_or(default_output(p_)), entries, p_.m, p_.n);
      return;
    }
    const Operand& out = *t_.out;
    check(out, "out", {2, 3, kAnyType, true});
    check_type_of_out(out, d_type);
    if (call_.batched != (out.ndim == 3) || !has_shape_of_d(out, false)) {
      refuse_value("out is {}; it must be {}", shape_text(out), shape_of_d());
    }
    p_.d = layout_like_d(out, "out", true);
    arguments_.d = out.data;
  }

  void place_scale_out() {
    p_.ue8m0_scale_out = options_.ue8m0;
    if (!options_.out_scale) {
      if (t_.scale_out) refuse_value("scale_out is given without out_scale; pass out_scale=\"block_1x128\"");
      refuse_scale_major(options_);
      return;
    }
    check_out_scale(*options_.out_scale);
    const auto [batch, rows, columns] = call_.scale_out_shape();
    p_.scale_out.kind = Scaling::block;
    if (!t_.scale_out) {
      const bool along_k = options_.scale_major == Major::k;
      // Groups' rows that are matrices of their own lie one behind the other, as D's do.
      const int64_t room = max_of<int64_t>(rows, 1) * (call_.stacks_rows() ? batch : 1);
      p_.scale_out.stride_row = along_k ? max_of<int64_t>(columns, 1) : 1;
      p_.scale_out.stride_k = along_k ? 1 : room;
      p_.scale_out.stride_batch = call_.batched && !call_.stacks_rows() && batch > 1 ? rows * columns : 0;
      return;
    }
    const Operand& given = *t_.scale_out;
    check(given, "scale_out", {2, 3, kFloat32, true});
    const bool fits = given.ndim == (call_.batched ? 3 : 2) && given.rows() == rows && given.columns() == columns &&
                      (!call_.batched || given.batch() == batch);
    if (!fits) {
      refuse_value(
          "scale_out is {}; it must be {}", shape_text(given),
          call_.batched ? fmt::format("({}, {}, {})", batch, rows, columns) : fmt::format("({}, {})", rows, columns));
    }
    const Operand x = call_.stacks_rows() ? stacked(given, "scale_out", true) : given;
    p_.scale_out.stride_row = x.stride[x.ndim - 2];
    p_.scale_out.stride_k = x.stride[x.ndim - 1];
    p_.scale_out.stride_batch = x.ndim == 3 && x.shape[0] > 1 ? x.stride[0] : 0;
    arguments_.scale_out = static_cast<float*>(given.data);
  }

 private:
  void check(const Operand& operand, const char* name, const Form& form) const {
    check_form(operand, name, form, t_.a->device, "a");
  }
  /// Whether D and the outputs beside it are to be made. One answer for all of them: what is given must not be cleared
  /// unasked, what is made must not hold anything.
  bool makes_outputs() const {
    for (const std::optional<Operand>& output : t_.epilogue.outputs) {
      if (output.has_value() == t_.out.has_value()) continue;
      refuse_value(
          "out has some of the epilogue function's outputs, others are to be made; pass zero_rest=True to zero what "
          "belongs to no group in all of them, False to leave it, or all outputs, or none");
    }
    return !t_.out;
  }
  /// By the ranks of a and b: what has no dimension for groups has them in one of its own.
  Grouping grouped_dimension() const {
    if (a_.ndim == 2 && b_.ndim == 2) return Grouping::k;
    return a_.ndim == 2 ? Grouping::m : Grouping::n;
  }

  /// For a line each of all groups' matrices of their own, whose rows `out` tells.
  void place_apart() {
    const bool fits = t_.out && t_.out->ndim == 3 && t_.offs && options_.alignment && !options_.a_is_transposed;
    if (!fits) {
      refuse_value(
          "a is {} and b is {}: groups of K that lie apart. Pass their ends as offs, with an alignment, and an out of "
          "[groups, M, N]; or matrices",
          shape_text(a_), shape_text(b_));
    }
    a_ = rows_apart(a_, "a", "rows", t_.out->rows());
    b_ = transposed(rows_apart(b_, "b", "columns", t_.out->columns()));
    p_.groups.apart = true;
  }

  /// [rows, K], which has the groups' matrices behind each other instead of beside each other.
  Operand rows_apart(Operand x, const char* name, const char* lines, int64_t rows) const {
    if (x.shape[0] > 1 && x.stride[0] != 1) {
      refuse_value("{} has a stride of {}; it must be contiguous, pass a copy", name, x.stride[0]);
    }
    if (rows == 0 ? x.shape[0] != 0 : x.shape[0] % rows != 0) {
      refuse_value("{} is {}, but out has {} {}; it must have as many elements of K of each", name, shape_text(x), rows,
                   lines);
    }
    const int64_t k = rows == 0 ? 0 : x.shape[0] / rows;
    x.ndim = 2;
    x.shape[0] = rows, x.shape[1] = k;
    x.stride[0] = k, x.stride[1] = 1;
    return x;
  }

  /// For matrices with room for `spacing` rows in every group, and counts of those that it uses.
  void stack_operands(int64_t groups) {
    if (!t_.counts) {
      refuse_value(
          "a is {} and b is {}: a batch has nothing to group. Leave the bounds out, or pass counts for groups of the "
          "first rows of each matrix of a",
          shape_text(a_), shape_text(b_));
    }
    if (options_.alignment) {
      refuse_value("alignment is {}, but a is {}, whose groups begin with its matrices; leave it out",
                   *options_.alignment, shape_text(a_));
    }
    p_.batch = groups;
    check_entries("a", a_);
    check_entries("b", b_);
    p_.groups.spacing = a_.rows() > 0 ? a_.rows() : 1;
    call_.batched = true;
    a_ = stacked(a_, "a");
    if (options_.a_is_transposed) b_ = stacked(b_, "b");
  }

  void check_entries(const char* name, const Operand& x) const {
    if (x.ndim == 2 || x.batch() == p_.batch) return;
    refuse_value("{0} is {1}, but {2} {5} described; {0} must have a matrix for each, ({2}, {3}, {4})", name,
                 shape_text(x), p_.batch, x.rows(), x.columns(), p_.batch == 1 ? "group is" : "groups are");
  }

  const int32_t* line(const Operand& zero_points, const char* name, int64_t length) const {
    check(zero_points, name, {1, 2, kInt32});
    check_line(zero_points, name, length);
    return static_cast<const int32_t*>(zero_points.data);
  }

  bool has_shape_of_d(const Operand& x, bool may_broadcast) const {
    const auto [batch, rows, columns] = call_.d_shape();
    const int64_t entries = call_.batched ? batch : 1;
    return x.rows() == rows && x.columns() == columns && (x.batch() == entries || (may_broadcast && x.batch() == 1));
  }

  MatrixLayout layout_like_d(const Operand& x, const char* name, bool written) const {
    return layout_of(call_.stacks_rows() ? stacked(x, name, written) : x, name, written);
  }

  std::string shape_of_d() const {
    const auto [batch, rows, columns] = call_.d_shape();
    return call_.batched ? fmt::format("({}, {}, {})", batch, rows, columns) : fmt::format("({}, {})", rows, columns);
  }

  const GemmTensors& t_;
  const GemmOptions& options_;
  GemmCall& call_;
  GemmProblem& p_;
  GemmArguments& arguments_;
  Operand a_, b_;  // as the product reads them
};

}  // namespace

bool GemmCall::stacks_rows() const {
  return problem.groups.dimension == Grouping::m && problem.groups.bounds == GroupBounds::counts && batched;
}

std::array<int64_t, 3> GemmCall::d_shape() const {
  const bool rows_by_group = batched && problem.groups.dimension == Grouping::m;
  return {problem.batch, rows_by_group ? problem.m / problem.batch : problem.m, problem.n};
}

std::array<int64_t, 3> GemmCall::scale_out_shape() const {
  const auto [batch, rows, columns] = d_shape();
  return {batch, rows, ceil_div<int64_t>(columns, kScaleBlock)};
}

void set_plan_options(const PlanOptions& options, GemmProblem& problem) {
  problem.split_k_mode = options.split_k_mode;
  problem.split_k_slices = options.split_k_slices;
  problem.kernel = options.kernel;
  problem.precision = options.precision;
  problem.fast_accumulation = options.fast_accumulation;
  problem.static_b = options.static_b;
  problem.deterministic = options.deterministic;
  if (options.deterministic == Determinism::repeatable)
    problem.deterministic = most_promised(problem, default_determinism());
}

void check_options_of_groups(const GemmOptions& options, const GemmProblem& problem) {
  if (problem.groups.dimension != Grouping::none) return;
  if (options.alignment)
    refuse_value("alignment is {}, but no bounds of groups are given; pass offs, or leave it out", *options.alignment);
  if (options.expected_m)
    refuse_value("expected_m is {}, but no bounds of groups are given; pass offs or counts, or leave it out",
                 *options.expected_m);
  if (options.zero_rest.value_or(false))
    refuse_value("zero_rest is True, but no bounds of groups are given, and all of D is written; leave it out");
}

void refuse_scale_major(const GemmOptions& options) {
  if (options.scale_major == Major::k) return;
  refuse_value("scale_major is {}, but no scales are found; pass out_scale=\"block_1x128\", or leave it out",
               to_string(options.scale_major));
}

void check_out_scale(Granularity granularity) {
  if (granularity == Granularity::block_1x128) return;
  refuse_value(
      "out_scale is {}; it must be \"block_1x128\", or, where cleave.gemm, scaled_gemm or grouped_gemm is called, "
      "\"row\", \"tensor\" or \"block_128x128\"",
      to_string(granularity));
}

GemmCall make_call(const GemmTensors& tensors, const GemmOptions& options) {
  GemmCall call;
  Builder builder(tensors, options, call);
  builder.check_operands();
  if (options.grouped) builder.place_groups();
  builder.place_gather();
  builder.place_matrices();
  if (tensors.c) builder.place_c();
  if (tensors.bias) builder.place_bias();
  if (tensors.scale_a || tensors.scale_b) builder.place_scale_factors();
  if (tensors.azp || tensors.azp_adj) builder.place_zero_points();
  if (options.weights) place_weights(tensors, *options.weights, call.problem, call.arguments);
  builder.place_d();
  builder.place_scale_out();
  place_range(tensors.scale_d, tensors.amax, "a", call);
  if (tensors.epilogue.function != nullptr) place_epilogue(tensors.epilogue, call);
  set_plan_options(options.plan, call.problem);
  return call;
}

DType default_output(const GemmProblem& p) {
  if (size_of(p.a.dtype) > 1) return p.a.dtype;
  const bool exact =
      p.a.dtype == DType::i8 && p.scale_a.kind == Scaling::none && p.weights_b.format == WeightFormat::none;
  return exact ? DType::i32 : DType::bf16;
}

void set_scalars(float alpha, std::optional<float> beta, ProductCall& call) {
  const bool has_c = call.problem.has_c;
  if (!has_c && beta.value_or(0.0f) != 0.0f) {
    refuse_value("beta is {} but there is no c; pass c (c=out adds to out in place)", *beta);
  }
  call.arguments.alpha = alpha;
  call.arguments.beta = beta.value_or(has_c ? 1.0f : 0.0f);
}

int32_t slice_count(std::optional<int64_t> slices) {
  if (!slices) return 0;
  if (*slices < 1 || *slices > std::numeric_limits<int32_t>::max()) {
    refuse_value("split_k_slices is {}; it must be from 1 to 2^31 - 1, or None to let the planner choose", *slices);
  }
  return int32_t(*slices);
}

}  // namespace cleave
