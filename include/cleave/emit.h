// A planned operation as source code of its own: a folder that builds without this library, for any
// sizes that the plan's kernel serves.
//
//   const auto files = cleave::emit(*plan, {.name = "projection", .archs = {"sm_80", "sm_90a"}});
//   cleave::write_folder(files, "projection");
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cleave/gemm.h"

namespace cleave {

enum class EmitTarget {
  cpp,      ///< a C++ library with a CMake package and an example
  pytorch,  ///< the same class behind an operator of torch, as a Python package
};

enum class EmitSources {
  cuda,   ///< kernels as source, for nvcc 12.0 or later
  cubin,  ///< compiled kernels: nvcc is not needed
};

struct EmitOptions {
  std::string name;  ///< of the operation and the files; the namespace is emitted::<name>
  EmitTarget target = EmitTarget::cpp;
  EmitSources sources = EmitSources::cuda;
  std::vector<std::string> archs = {};  ///< of "sm_80" and "sm_90a"; none: the plan's own
};

/// Contents by their paths, relative to the folder.
using EmittedFiles = std::map<std::string, std::string>;

/// The plan's own architecture gets its kernel, another one the best that the planner knows for it.
/// Compiling for `cubin` needs NVRTC, but no GPU. Throws Error for a name that is no identifier, or
/// that C++ or CUDA would take for something else, a plan without a kernel (for the CPU, or of an
/// empty D), and an architecture that lacks one.
CLEAVE_API EmittedFiles emit(const GemmPlan& plan, const EmitOptions& options);

/// Throws Error(invalid_argument) if `folder` exists and is anything but an empty folder.
CLEAVE_API void check_folder(const std::filesystem::path& folder);

/// All or nothing: the folder appears with all files in it, or an Error is thrown and there is
/// none. Folders above it are made. No link is followed, and nothing of others' becomes part of it.
CLEAVE_API void write_folder(const EmittedFiles& files, const std::filesystem::path& folder);

}  // namespace cleave
