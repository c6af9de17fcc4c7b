#include "over_ranks/product.h"

namespace cleave {

Product product_of(const GemmTensors& tensors, const GemmOptions& options) {
  GemmCall call = make_call(tensors, options);
  set_scalars(1.0f, std::nullopt, call);
  return {plan(call.problem), call.arguments};
}

PlanOptions unsplit(PlanOptions options) {
  if (default_determinism() < Determinism::batch_invariant) options.split_k_mode = SplitKMode::none;
  return options;
}

}  // namespace cleave
