// The parts of the module; each adds its functions and classes.
#pragma once

#include <nanobind/nanobind.h>

namespace cleave::python {

/// What functions report, by name.
using Fields = nanobind::typed<nanobind::dict, nanobind::str, nanobind::object>;
using FieldsList = nanobind::typed<nanobind::list, Fields>;

void bind_errors(nanobind::module_& m);             // CudaError, and what cleave::Error becomes
void bind_epilogue(nanobind::module_& m);           // EpilogueFunction, activations
void bind_gemm(nanobind::module_& m);               // gemm, plan_gemm
void bind_scaled_gemm(nanobind::module_& m);        // scaled_gemm, plan_scaled_gemm
void bind_mixed_gemm(nanobind::module_& m);         // mixed_gemm, of the tensors of a packed weight
void bind_grouped_gemm(nanobind::module_& m);       // grouped_gemm, its plan, grouped_gemm_wgrad
void bind_conv(nanobind::module_& m);               // conv1d, conv2d, conv3d and their gradients
void bind_quantize(nanobind::module_& m);           // quantize, plan_quantize, QuantizePlan
void bind_moe(nanobind::module_& m);                // what cleave.moe has,
void bind_route(nanobind::module_& m);              // and its router,
void bind_router_logits(nanobind::module_& m);      // with what it scores by
void bind_weights(nanobind::module_& m);            // of 4 bits: what packs them
void bind_group(nanobind::module_& m);              // Group
void bind_sum_over_ranks(nanobind::module_& m);     // a whole sum over its ranks
void bind_gather_over_ranks(nanobind::module_& m);  // of a gathered product
void bind_gemm_plan(nanobind::module_& m);          // GemmPlan
void bind_plan_problem(nanobind::module_& m);       // plan_problem
void bind_plan_conv_problem(nanobind::module_& m);  // plan_conv_problem
void bind_tuning(nanobind::module_& m);             // plan_as, what is tuned, launch_floor, host_bench
void bind_problem_arrays(nanobind::module_& m);     // problem_text, plan_text, arrays_of, groups_of, run_at
void bind_kernel_plans(nanobind::module_& m);       // KernelPlan: routers, their logits, low-rank adapters; lora
void bind_mistakes(nanobind::module_& m);           // explain_mistakes
void bind_inspect(nanobind::module_& m);            // inspect, dtype_name
void bind_emit(nanobind::module_& m);               // emit
void bind_kernels(nanobind::module_& m);            // compile_all, compile_plan, the disk cache
void bind_runtime(nanobind::module_& m);            // devices, driver, NVRTC, workspaces

}  // namespace cleave::python
