#include "operands/lora_operands.h"

#include "base/refuse.h"
#include "operands/packed.h"

namespace cleave {

LoraCall make_call(const LoraTensors& tensors, double scale) {
  const Operand &x = *tensors.x, &a = *tensors.a, &b = *tensors.b, &offs = *tensors.offs, &out = *tensors.out;
  const auto types = kFloatTypes;
  check_form(x, "x", {2, 2, types}, x.device, "x");
  check_form(a, "a", {3, 3, types}, x.device, "x");
  check_form(b, "b", {3, 3, types}, x.device, "x");
  check_form(out, "out", {2, 2, types, true}, x.device, "x");
  check_rank(offs, "offs", 1, 1);
  check_integers(offs, "offs", x.device, "x");
  if (packed_count(offs, "offs") != a.batch()) {
    refuse_value("offs is {} and a is {}; offs must have the end of each adapter's rows", shape_text(offs),
                 shape_text(a));
  }
  if (b.batch() != a.batch() || b.columns() != a.rows()) {
    refuse_value("b is {} and a is {}; they must be [adapters, out_features, rank] and [adapters, rank, in_features]",
                 shape_text(b), shape_text(a));
  }
  if (a.columns() != x.columns()) {
    refuse_value("a is {} and x is {}; a row of each must have the same features", shape_text(a), shape_text(x));
  }
  if (out.rows() != x.rows() || out.columns() != b.rows()) {
    refuse_value("out is {}; it must be ({}, {}), a row for each of x's with what b gives", shape_text(out), x.rows(),
                 b.rows());
  }
  return {.problem = {.rows = x.rows(),
                      .features = x.columns(),
                      .outputs = out.columns(),
                      .rank = a.rows(),
                      .adapters = a.batch(),
                      .x = row_major(x, "x"),
                      .a = row_major(a, "a"),
                      .b = row_major(b, "b"),
                      .out = row_major(out, "out", true),
                      .wide_offs = offs.int64,
                      .device = x.device},
          .arguments = {.x = x.data,
                        .a = a.data,
                        .b = b.data,
                        .offs = offs.data,
                        .out = out.data,
                        .scale = float32_of(scale, "scale")}};
}

}  // namespace cleave
