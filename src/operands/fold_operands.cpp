#include "operands/fold_operands.h"

#include <algorithm>

#include "base/refuse.h"
#include "cleave/core/math.h"
#include "cleave/epilogue.h"
#include "operands/packed.h"

namespace cleave {

FoldCall make_call(const FoldTensors& t, Activation activation, int64_t most_rows, bool ue8m0) {
  if (t.partials.empty() || t.partials.size() > size_t(kMostFoldedRanks))
    refuse_value("there are {} partial results; a sum has 1 to {}", t.partials.size(), kMostFoldedRanks);
  FoldCall call;
  FoldProblem& p = call.problem;
  p.device = t.d.device;
  const EpilogueProblem epilogue = epilogue_of(activation);
  const bool gated = epilogue.gates != Gates::none;
  p.function = epilogue.function;
  p.ranks = int64_t(t.partials.size());
  check_form(t.d, "out", {2, 2, kAnyType, true}, p.device, "out");
  p.d = row_major(t.d, "out");
  p.rows = t.d.rows();
  p.columns = t.d.columns() * (gated ? 2 : 1);
  const auto layout = [&](const Operand& x, const char* name, std::span<const DType> types) {
    check_form(x, name, {2, 2, types}, p.device, "out");
    if (x.rows() != p.rows || x.columns() != p.columns)
      refuse_value("{} is {} and out is {}; {}", name, shape_text(x), shape_text(t.d),
                   gated ? "it must have as many rows, and two columns for each of out's" : "they must be the same");
    return row_major(x, name);
  };
  p.most_rows = most_rows;
  constexpr DType kExact[] = {DType::i32};
  const auto types = t.partials[0].dtype == DType::i32 ? std::span<const DType>(kExact) : kFloatTypes;
  p.partial = layout(t.partials[0], "partials[0]", types);
  call.arguments.d = t.d.data;
  for (size_t r = 0; r < t.partials.size(); ++r) {
    const MatrixLayout other = layout(t.partials[r], "a partial result", types);
    p.partial.alignment = std::min(p.partial.alignment, other.alignment);
    if (other.dtype != p.partial.dtype || other.stride_row != p.partial.stride_row)
      refuse_value("partials[{}] has other elements or rows than partials[0]; they must lie alike", r);
    call.arguments.partials[r] = t.partials[r].data;
  }
  const auto scale = [&](const std::optional<Operand>& x, const char* name, int64_t count, ScaleLayout& place) {
    if (!x) return static_cast<const float*>(nullptr);
    constexpr DType kFloat[] = {DType::f32};
    check_form(*x, name, {1, 1, kFloat}, p.device, "out");
    const int64_t given = packed_count(*x, name);
    if (given != 1 && given != count)
      refuse_value("{} is {} and out is {}; it must have one value, or {}", name, shape_text(*x), shape_text(t.d),
                   count);
    place = {.kind = Scaling::vector, .stride_row = given == 1 ? 0 : 1};
    return static_cast<const float*>(x->data);
  };
  call.arguments.scale_a = scale(t.scale_a, "scale_a", p.rows, p.scale_a);
  call.arguments.scale_b = scale(t.scale_b, "scale_b", p.columns, p.scale_b);
  if (t.c) {
    p.has_c = true;
    p.c = layout(*t.c, "c", kFloatTypes);
    call.arguments.c = t.c->data;
  }
  if (t.bias) {
    check_form(*t.bias, "bias", {1, 1, kFloatTypes}, p.device, "out");
    if (packed_count(*t.bias, "bias") != p.columns)
      refuse_value("bias is {} and out is {}; it must have a value for each column of the sum, {}", shape_text(*t.bias),
                   shape_text(t.d), p.columns);
    p.has_bias = true;
    p.bias = t.bias->dtype;
    call.arguments.bias = t.bias->data;
  }
  if (t.scale_d) {
    p.has_scale_d = true;
    call.arguments.scale_d = one_value(*t.scale_d, "scale_d", p.device, "out");
  }
  p.ue8m0_scale_out = ue8m0;
  if (t.scale_out) {
    constexpr DType kFloat[] = {DType::f32};
    check_form(*t.scale_out, "scale_out", {2, 2, kFloat, true}, p.device, "out");
    const int64_t lines = ceil_div<int64_t>(t.d.columns(), kScaleBlock);
    if (t.scale_out->rows() != p.rows || t.scale_out->columns() != lines)
      refuse_value("scale_out is {} and out is {}; it must be ({}, {})", shape_text(*t.scale_out), shape_text(t.d),
                   p.rows, lines);
    p.scale_out = {.kind = Scaling::block, .stride_row = t.scale_out->stride[0], .stride_k = t.scale_out->stride[1]};
    call.arguments.scale_out = static_cast<float*>(t.scale_out->data);
  }
  return call;
}

}  // namespace cleave
