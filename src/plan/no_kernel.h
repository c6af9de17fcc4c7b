// Why no kernel serves a problem that is valid.
#pragma once

#include "cleave/device.h"
#include "cleave/gemm.h"

namespace cleave {

/// Throws Error(unsupported), with what the kernels need that were asked for and what to ask instead.
[[noreturn]] void refuse_unserved(const GemmProblem& problem, const DeviceInfo& device);

}  // namespace cleave
