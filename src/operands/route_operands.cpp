#include "operands/route_operands.h"

#include "base/refuse.h"
#include "operands/packed.h"

namespace cleave {

RouteCall make_call(const RouteTensors& tensors, const RouteOptions& options) {
  const Operand& logits = *tensors.logits;
  check_form(logits, "logits", {2, 2, kFloatTypes}, logits.device, "logits");
  RouteCall call;
  RouteProblem& p = call.problem;
  p.tokens = logits.rows();
  p.experts = logits.columns();
  p.logits = row_major(logits, "logits");
  p.device = logits.device;
  call.arguments.logits = logits.data;
  if (tensors.bias) {
    const Operand& bias = *tensors.bias;
    check_form(bias, "bias", {1, 1, kFloat32}, p.device, "logits");
    if (packed_count(bias, "bias") != p.experts) {
      refuse_value("bias is {} and logits is {}; there must be a bias for each expert", shape_text(bias),
                   shape_text(logits));
    }
    p.has_bias = true;
    call.arguments.bias = static_cast<const float*>(bias.data);
  }
  p.top_k = options.top_k;
  p.scoring_func = options.scoring_func;
  p.n_group = options.n_group;
  p.topk_group = options.topk_group.value_or(options.n_group);
  p.group_score = options.group_score;
  p.renormalize = options.renormalize;
  p.routed_scaling_factor = options.routed_scaling_factor;
  return call;
}

}  // namespace cleave
