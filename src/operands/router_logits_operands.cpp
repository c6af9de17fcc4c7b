#include "operands/router_logits_operands.h"

#include "base/refuse.h"
#include "operands/packed.h"

namespace cleave {

RouterLogitsCall make_call(const RouterLogitsTensors& tensors, bool static_weight) {
  const Operand &x = *tensors.x, &weight = *tensors.weight;
  check_form(x, "x", {2, 2, kFloatTypes}, x.device, "x");
  check_form(weight, "weight", {2, 2, kFloatTypes}, x.device, "x");
  if (weight.columns() != x.columns()) {
    refuse_value("weight is {} and x is {}; a row of each must have the same features", shape_text(weight),
                 shape_text(x));
  }
  return {.problem = {.tokens = x.rows(),
                      .experts = weight.rows(),
                      .features = x.columns(),
                      .x = row_major(x, "x"),
                      .weight = row_major(weight, "weight"),
                      .static_weight = static_weight,
                      .device = x.device},
          .arguments = {.x = x.data, .weight = weight.data}};
}

}  // namespace cleave
