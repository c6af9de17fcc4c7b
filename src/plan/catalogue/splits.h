// The ways to split K that are weighed.
#pragma once

#include "cleave/device.h"
#include "cleave/gemm.h"
#include "plan/catalogue/considered.h"
#include "plan/choice/spec.h"

namespace cleave {

/// Adds `spec` whole, and with K split in every way that the problem asks for, or that may pay.
void add_splits(Considered& out, const GemmProblem& problem, const DeviceInfo& device, Spec spec);

/// Adds `spec`, of parallel split-K, with every number of slices that may pay.
void add_slices(Considered& out, const GemmProblem& problem, const DeviceInfo& device, Spec spec);

/// Whether K is split, if at all, in a way and a number of slices that are weighed for some problem.
bool is_split(const Spec& spec);

}  // namespace cleave
