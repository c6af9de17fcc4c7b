// Docstrings that functions which plan, and plans of several kinds, share.
#pragma once

#include <fmt/format.h>

#include <string>

namespace cleave::python {

/// The docstring of the functions that plan `gemm`, `scaled_gemm` and `grouped_gemm`.
inline std::string plan_doc(const char* function) {
  constexpr const char* kText =
      R"(Plans a product without running it; the arguments and errors are those of `{}`.

Only shape, strides, dtype, device and alignment of the arrays matter, and which of them are given;
sizes of groups do not. Returns a `GemmPlan` for arrays of just this form. Compiles nothing.)";
  return fmt::format(fmt::runtime(kText), function);
}

inline constexpr const char* kKernelSourcesDoc = "The source text of each kernel; empty on the CPU backend.";

inline constexpr const char* kKernelArchDoc =
    "What the kernels are compiled for, such as \"sm_90a\"; empty on the CPU backend.";

inline constexpr const char* kPrepareDoc =
    R"(Compiles and loads the kernels, and allocates the pooled workspace of `stream`.

Call it before capturing a CUDA graph on that stream (None: the legacy default stream).)";

}  // namespace cleave::python
