#include <algorithm>
#include <limits>
#include <utility>

#include "call.h"
#include "launch/packed_weight.h"
#include "refuse.h"

namespace emitted::operation {
namespace {

using cleave::Scaling;

/// A matrix of so many rows and columns. What is kPacked becomes the stride of one without gaps.
void place(cleave::MatrixLayout& layout, cleave::Order order, int64_t rows, int64_t columns, int64_t leading) {
  const bool by_row = order == cleave::Order::row;
  if (leading == kPacked) leading = by_row ? columns : rows;
  layout.stride_row = by_row ? leading : 1;
  layout.stride_col = by_row ? 1 : leading;
  if (layout.stride_batch == kPacked) layout.stride_batch = leading * (by_row ? rows : columns);
}

/// A packed weight.
void place_weight(cleave::GemmProblem& p) {
  if (p.b.stride_batch != 0 && p.b.stride_batch != kPacked)
    refuse("batch_stride_b is ", p.b.stride_batch, "; it must be kPacked, or 0 for one weight");
  if (kWholeRows) p.weights_b.group = std::max<int64_t>(p.k, 1);
  cleave::place_packed_weight(p, p.b.stride_batch == 0);
}

/// The same of scales of `rows` rows, or columns of B, in the planned order.
void place(cleave::ScaleLayout& layout, const cleave::ScaleLayout& planned, int64_t rows, int64_t k) {
  if (layout.kind == Scaling::vector && layout.stride_batch == kPacked) layout.stride_batch = layout.stride_row * rows;
  if (layout.kind != Scaling::block) return;
  const int64_t row_blocks = cleave::ceil_div<int64_t>(rows, layout.rows);
  const int64_t k_blocks = cleave::ceil_div<int64_t>(k, cleave::kScaleBlock);
  const bool by_k = planned.stride_k == 1 && planned.stride_row != 1;
  if (layout.stride_row == kPacked) layout.stride_row = by_k ? k_blocks : 1;
  if (layout.stride_k == kPacked) layout.stride_k = by_k ? 1 : row_blocks;
  if (layout.stride_batch == kPacked) layout.stride_batch = row_blocks * k_blocks;
}

/// What a call says of where an operand of the function lies, whose matrices have so many rows and columns.
template <class Operand>
void place(cleave::EpilogueLayout& layout, const Operand& x, int64_t rows, int64_t columns) {
  const bool by_row = layout.order == cleave::Order::row;
  if constexpr (requires { x.stride; }) layout.stride = x.stride;
  if constexpr (requires { x.ld; }) layout.stride = x.ld != kPacked ? x.ld : by_row ? columns : rows;
  if constexpr (requires { x.batch_stride; }) {
    const bool of_rows = requires { x.stride; } ? layout.shape == cleave::InputShape::column : by_row;
    layout.stride_batch = x.batch_stride != kPacked ? x.batch_stride : layout.stride * (of_rows ? rows : columns);
  }
}

// Where the operation has such an argument.
#define SET(target, argument) \
  if constexpr (requires { x.argument; }) target = x.argument

template <class Arguments>
Given read_call(const Arguments& x) {
  Given given;
  cleave::GemmProblem& p = given.problem;
  p.m = x.m;
  p.n = x.n;
  p.k = x.k;
  SET(p.batch, batch);
  SET(p.batch, groups);
  SET(p.groups.spacing, spacing);
  SET(p.groups.zero_rest, zero_rest);
  check_sizes(p);

  SET(p.a.stride_batch, batch_stride_a);
  SET(p.b.stride_batch, batch_stride_b);
  SET(p.d.stride_batch, batch_stride_d);
  SET(p.c.stride_batch, batch_stride_c);
  place(p.a, kOrders.a, x.m, x.k, x.lda);
  if constexpr (kPackedWeight)
    place_weight(p);
  else
    place(p.b, kOrders.b, x.k, columns_of_b(p), x.ldb);
  place(p.d, kOrders.d, x.m, x.n, x.ldd);
  if constexpr (kOperation.has_c) place(p.c, kOrders.d, x.m, x.n, x.ldc);
  SET(p.bias_stride_batch, batch_stride_bias);

  SET(p.scale_a.stride_row, scale_a_stride);
  SET(p.scale_b.stride_row, scale_b_stride);
  SET(p.scale_a.stride_row, scale_a_stride_row);
  SET(p.scale_b.stride_row, scale_b_stride_col);
  SET(p.scale_a.stride_k, scale_a_stride_k);
  SET(p.scale_b.stride_k, scale_b_stride_k);
  SET(p.scale_a.stride_batch, batch_stride_scale_a);
  SET(p.scale_b.stride_batch, batch_stride_scale_b);
  place(p.scale_a, kOperation.scale_a, p.m, p.k);
  place(p.scale_b, kOperation.scale_b, columns_of_b(p), p.k);

  cleave::GemmArguments& pointers = given.arguments;
  pointers.a = x.a;
  pointers.b = x.b;
  pointers.d = x.d;
  pointers.alpha = x.alpha;
  SET(pointers.c, c);
  SET(pointers.beta, beta);
  SET(pointers.bias, bias);
  SET(pointers.scale_a, scale_a);
  SET(pointers.scale_b, scale_b);
  SET(pointers.scale_b, global_scale);
  SET(pointers.weight_scale, scales);
  SET(pointers.weight_zero, zeros);
  SET(pointers.zero_a, zero_a);
  SET(pointers.zero_b, zero_b);
  SET(pointers.scale_d, scale_d);
  SET(pointers.amax, amax);
  SET(pointers.group_offsets, offsets);
  SET(pointers.group_sizes, sizes);
  if constexpr (kOperation.epilogue.function != nullptr) {
    visit_inputs(x, [&](uint32_t i, const auto& input) {
      place(p.epilogue.inputs[i], input, x.m, x.n);
      pointers.epilogue_inputs[i].data = input.data;
      if constexpr (requires { input.value; }) pointers.epilogue_inputs[i].value = input.value;
    });
    visit_outputs(x, [&](uint32_t i, const auto& output) {
      place(p.epilogue.outputs[i], output, x.m, x.n);
      pointers.epilogue_outputs[i] = output.data;
    });
  }
  return given;
}

#undef SET

}  // namespace

void check_sizes(const cleave::GemmProblem& p) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const std::pair<const char*, int64_t> sizes[] = {
      {"m", p.m}, {"n", p.n}, {"k", p.k}, {kGrouped ? "groups" : "batch", p.batch}, {"spacing", p.groups.spacing}};
  for (const auto& [name, size] : sizes)
    if (size < 0 || size > kMost) refuse(name, " is ", size, "; it must be from 0 to ", kMost);
  if (kSpaced && (p.groups.spacing == 0 || p.groups.spacing % kSpacingStep != 0))
    refuse("spacing is ", p.groups.spacing, "; it must be a positive multiple of ", kSpacingStep);
}

Given read(const Arguments& arguments) {
  return read_call(arguments);
}

}  // namespace emitted::operation
