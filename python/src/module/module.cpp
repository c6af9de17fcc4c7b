#include "module/bindings.h"

NB_MODULE(_core, m) {
  using namespace cleave::python;
#ifdef NDEBUG
  // The frames of daemon threads, for which the exit does not wait, hold objects to the end.
  nanobind::set_leak_warnings(false);
#endif
  m.doc() = "The compiled part of the package `cleave`.";
  m.attr("__version__") = CLEAVE_VERSION;
  bind_errors(m);
  bind_epilogue(m);
  bind_gemm_plan(m);
  bind_gemm(m);
  bind_scaled_gemm(m);
  bind_mixed_gemm(m);
  bind_grouped_gemm(m);
  bind_conv(m);
  bind_quantize(m);
  bind_moe(m);
  bind_route(m);
  bind_router_logits(m);
  bind_weights(m);
  bind_group(m);
  bind_sum_over_ranks(m);
  bind_gather_over_ranks(m);
  bind_plan_problem(m);
  bind_plan_conv_problem(m);
  bind_kernel_plans(m);
  bind_mistakes(m);
  bind_inspect(m);
  bind_tuning(m);
  bind_problem_arrays(m);
  bind_emit(m);
  bind_kernels(m);
  bind_runtime(m);
}
