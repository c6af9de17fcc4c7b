// Text files inside the library, by their names below the folder that they are of. embed_files.cmake generates the
// definitions.
#pragma once

#include <span>

namespace cleave {

struct EmbeddedFile {
  const char* name;
  const char* text;
};

/// Every header of kernels/cleave, and those of include/cleave/core, as #include spells them: "cleave/core/enums.h".
/// NVRTC gets them in memory and needs no include path.
std::span<const EmbeddedFile> embedded_headers();

/// The measured winners that ship with the library, in the form of plan/measured/tuned.h: "h100.txt".
std::span<const EmbeddedFile> shipped_tuned_tables();

/// The covering sets that ship, in the form of plan/measured/covering.h: "h200.txt".
std::span<const EmbeddedFile> covering_tables();

// What emitted projects are made of.

/// Text with gaps, below src/emit/templates: "cpp/CMakeLists.txt.in".
std::span<const EmbeddedFile> embedded_templates();

/// Code that emitted projects copy, below src/emit/project: "common/src/driver.h".
std::span<const EmbeddedFile> embedded_project();

/// Headers of src/launch, which both the library and emitted projects include: "launch/gemm_grid.h".
std::span<const EmbeddedFile> embedded_host_headers();

/// What both include of the public headers, and of the torch operators: "cleave/problem.h",
/// "torch_ops/unstable.h".
std::span<const EmbeddedFile> embedded_public_headers();
std::span<const EmbeddedFile> embedded_torch_headers();

/// Sums of gradients in Python, which both have: "sum_to.py".
std::span<const EmbeddedFile> embedded_sums();

/// An epilogue function's graph, its derivative and their values by PyTorch: "graph.py".
std::span<const EmbeddedFile> embedded_functions();

/// LICENSE alone.
std::span<const EmbeddedFile> embedded_license();

}  // namespace cleave
