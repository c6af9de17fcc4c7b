// What the products have in common: everything but their arguments' names.
#pragma once

#include "plan_object.h"

namespace cleave::python {

/// The arguments that choose a kernel; null where the caller has none.
struct PlanOptions {
  nanobind::handle activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel;
  nanobind::handle use_fast_accum, alignment, zero_rest;
  bool grouped = false, a_is_transposed = false;  // as in GemmOptions
};

/// Reads, plans (or finds the plan that did the same before) and runs. Returns D.
nanobind::object multiply(const GemmInputs& inputs, const PlanOptions& options,
                          const LaunchOptions& launch_options);

PlanObject plan_product(const GemmInputs& inputs, const PlanOptions& options);

}  // namespace cleave::python
