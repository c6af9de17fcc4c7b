#include "peers/fold_problem.h"

#include "base/refuse.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "problem/arguments.h"
#include "problem/overlap.h"

namespace cleave {
namespace {

static_assert(kMostFoldedRanks == kMostRanks);

Placement absent_or(bool given, const Placement& place) {
  return given ? place : Placement{};
}
Placement matrix_of(const FoldProblem& p, const MatrixLayout& layout) {
  return {layout, p.rows, p.columns, 1};
}
Placement d_of(const FoldProblem& p) {
  return {p.d, p.rows, columns_of_d(p), 1};
}
Placement scale_out_of(const FoldProblem& p) {
  const MatrixLayout layout{.dtype = DType::f32,
                            .stride_row = p.scale_out.stride_row,
                            .stride_col = p.scale_out.stride_k,
                            .alignment = sizeof(float)};
  return absent_or(finds_scales(p), {layout, p.rows, ceil_div<int64_t>(columns_of_d(p), kScaleBlock), 1});
}

Placement c_of(const FoldProblem& p) {
  return absent_or(p.has_c, matrix_of(p, p.c));
}
Placement scale_of(const ScaleLayout& layout, int64_t count) {
  return absent_or(layout.kind != Scaling::none, vector_of(DType::f32, layout.stride_row == 0 ? 1 : count));
}
Placement bias_of(const FoldProblem& p) {
  return absent_or(p.has_bias, vector_of(p.bias, p.columns));
}

void check_function(const FoldProblem& p, Messages& out) {
  if (p.function == nullptr) return;
  if (gates_of(p) != Gates::none) {
    if (p.columns % 2 != 0) out.add("columns is {}; gates join two of them, so they must be even", p.columns);
    if (p.has_c) out.add("c is given, but a function of gates, to which nothing is added; leave c out");
  }
  if (!p.function->inputs().empty() || p.function->outputs().size() > 1)
    out.add("the function has inputs or further outputs, but a fold has none; apply it to the result");
}

void check_scales(const FoldProblem& p, Messages& out) {
  if (p.scale_out.kind == Scaling::none) return;
  if (p.scale_out.kind != Scaling::block || p.scale_out.rows != 1)
    out.add("scale_out is not of blocks of 1 row by {} columns; no other scales are found", kScaleBlock);
  if (!check_layout("scale_out", scale_out_of(p), true, out)) return;
  const int64_t pieces = fold_pieces(config_of(p), uint32_t(columns_of_d(p)));  // of a row, that threads count
  if (p.rows * pieces > kMaxSize)
    out.add("rows is {}; with scales of blocks, rows of {} columns may be up to {}, fold some at a time", p.rows,
            columns_of_d(p), kMaxSize / pieces);
  if (overlaps_itself(scale_out_of(p)))
    out.add("scale_out overlaps itself, with strides {} and {}; pass one that does not", p.scale_out.stride_row,
            p.scale_out.stride_k);
}

}  // namespace

int64_t columns_of_d(const FoldProblem& p) {
  return gates_of(p) == Gates::none ? p.columns : p.columns / 2;
}

void check_types(const FoldProblem& p, Messages& out) {
  const auto check = [&](const char* name, DType type) {
    if (!is_wide_float(type)) out.add("{} is {}; it must be float16, bfloat16 or float32", name, to_string(type));
  };
  if (p.partial.dtype != DType::i32) {
    check("partial", p.partial.dtype);
    if (p.scale_a.kind != Scaling::none || p.scale_b.kind != Scaling::none)
      out.add("partial is {}, which is scaled already; scale_a and scale_b are of int32", to_string(p.partial.dtype));
  }
  for (const ScaleLayout* scale : {&p.scale_a, &p.scale_b})
    if (scale->kind == Scaling::block || scale->stride_row < 0 || scale->stride_row > 1)
      out.add("a scale of int32 partial results is of blocks or strided; it must be one, or one of each row or column");
  if (p.has_c) check("c", p.c.dtype);
  if (p.has_bias) check("bias", p.bias);
  if (p.d.dtype == DType::i32) out.add("d is int32; a sum over ranks is a float, or of 8 bits with scale_d");
  if (p.has_scale_d && finds_scales(p))
    out.add("scale_d is given beside scale_out, whose scales are found; leave one of them out");
  if ((size_of(p.d.dtype) == 1) != (p.has_scale_d || finds_scales(p)))
    out.add("d is {} and scale_d {}; 8 bits are scaled, and nothing else is", to_string(p.d.dtype),
            p.has_scale_d     ? "is given"
            : finds_scales(p) ? "is found"
                              : "is missing");
  if (p.ue8m0_scale_out && !finds_scales(p)) out.add("ue8m0_scale_out is set, but no scales are found; leave it");
}

std::vector<std::string> validate(const FoldProblem& p) {
  Messages out;
  if (p.ranks < 1 || p.ranks > kMostFoldedRanks)
    out.add("ranks is {}; it must be from 1 to {}", p.ranks, kMostFoldedRanks);
  check_function(p, out);
  if (check_size("rows", p.rows, out) && check_size("columns", p.columns, out) &&
      check_size("most_rows", p.most_rows, out)) {
    if (p.rows * p.columns > kMaxSize) {
      out.add("rows x columns is {} x {}; they must have fewer than 2^31 elements, fold some rows at a time", p.rows,
              p.columns);
    } else if (p.rows > 0 && p.columns > 0) {
      check_rows("partial", matrix_of(p, p.partial), false, out);
      if (p.has_c) check_rows("c", c_of(p), false, out);
      check_rows("d", d_of(p), true, out);
      check_scales(p, out);
    }
  }
  check_types(p, out);
  check_device(p.device, out);
  if (out.empty() && p.pushed && !can_push(p))
    out.add("pushed is true, but {} partial results of {} x {} {} are too many or lie in unaligned rows; leave it",
            p.ranks, p.rows, p.columns, to_string(p.partial.dtype));
  if (out.empty() && p.in_strips && !(p.pushed && can_strip(p)))
    out.add("in_strips is true, but {} partial results of {} x {} {} fit no strips or are not pushed; leave it",
            p.ranks, p.rows, p.columns, to_string(p.partial.dtype));
  return out;
}

bool can_push(const FoldProblem& p) {
  if (p.ranks > kMostPushingRanks || !is_wide_float(p.partial.dtype)) return false;
  const FoldConfig config = config_of(p);
  const int64_t most = int64_t(kMostCtas) * kFoldThreads * pushed_pieces(config.ranks);
  return config.vectors && p.rows * fold_pieces(config, uint32_t(columns_of_d(p))) * fold_vectors(config) <= most;
}

bool can_strip(const FoldProblem& p) {
  return gates_of(p) == Gates::none && !finds_scales(p) && p.device != kCpu && is_wide_float(p.partial.dtype) &&
         fits_strips(p.ranks, p.rows, p.columns, size_of(p.partial.dtype));
}

FoldConfig config_of(const FoldProblem& p) {
  FoldConfig config{.ranks = uint32_t(p.ranks),
                    .partial = p.partial.dtype,
                    .d = p.d.dtype,
                    .has_c = p.has_c,
                    .has_bias = p.has_bias,
                    .has_scale_d = p.has_scale_d,
                    .finds_scales = finds_scales(p),
                    .ue8m0 = p.ue8m0_scale_out,
                    .pushed = p.pushed,
                    .strip_vectors = p.in_strips ? strip_vectors(uint32_t(p.rows), size_of(p.partial.dtype)) : 0,
                    .has_function = p.function != nullptr,
                    .gates = gates_of(p),
                    .function = p.function};
  if (p.has_c) config.c = p.c.dtype;
  if (p.has_bias) config.bias = p.bias;
  // D's pieces have as many elements, so twice the bytes where it is wider.
  config.vectors = columns_of_d(p) % fold_elements(config) == 0 && widest_access(matrix_of(p, p.partial)) == 16 &&
                   widest_access(d_of(p)) >= min_of(16u, fold_elements(config) * size_of(p.d.dtype));
  return config;
}

void check_arguments(const FoldProblem& p, const FoldArguments& arguments) {
  const Placement partial = matrix_of(p, p.partial);
  const NamedOperand others[] = {
      {"d", d_of(p), arguments.d, true, false, true},
      {"scale_out", scale_out_of(p), arguments.scale_out, true},
      {"c", c_of(p), arguments.c, false, false, true},
      {"bias", bias_of(p), arguments.bias, false},
      {"scale_a", scale_of(p.scale_a, p.rows), arguments.scale_a, false},
      {"scale_b", scale_of(p.scale_b, p.columns), arguments.scale_b, false},
      {"scale_d", absent_or(p.has_scale_d, vector_of(DType::f32, 1)), arguments.scale_d, false},
  };
  check_operands(others);
  for (int64_t r = 0; r < p.ranks; ++r) {
    const NamedOperand own{"a partial result", partial, arguments.partials[r], false};
    const NamedOperand pair[] = {others[0], own};
    check_operands(pair);
    if (!finds_scales(p)) continue;
    const NamedOperand other[] = {others[1], own};
    check_operands(other);
  }
  if (arguments.group != nullptr && arguments.group->device() != p.device)
    refuse_value("group is of device {}, and d of {}; fold where the group is", arguments.group->device(), p.device);
  if (arguments.group != nullptr && p.pushed && arguments.group->size() != p.ranks)
    refuse_value("group has {} ranks, and {} are to push; all of them do", arguments.group->size(), p.ranks);
}

}  // namespace cleave
