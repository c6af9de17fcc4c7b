// Writes a planned operation as a standalone project: a folder that builds without this library, for all sizes that the
// plan's kernel serves.
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
  pytorch,  ///< the same class behind a torch operator, as a Python package
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
  /// Text of an epilogue function that makes its gradients in an extension: inputs `grad_<output>` beside its own,
  /// outputs named as what they are gradients of. None: the function's derivative.
  std::string backward = {};
};

/// Contents of files, by their paths relative to the folder.
using EmittedFiles = std::map<std::string, std::string>;

/// The plan's own architecture gets the plan's kernel; another one gets the best kernel that the planner knows for it.
/// `cubin` compiles, which needs NVRTC but no GPU. Throws Error for a name that is no identifier or already means
/// something in C++ or CUDA, for a plan without a kernel (for the CPU, or with an empty D), and for an architecture
/// without one.
CLEAVE_API EmittedFiles emit(const GemmPlan& plan, const EmitOptions& options);

/// Throws Error(invalid_argument) if `folder` exists and is anything but an empty folder.
CLEAVE_API void check_folder(const std::filesystem::path& folder);

/// All or nothing: either the folder appears with all its files, or an Error is thrown and it does not. Creates parent
/// folders. No link is followed, and no foreign file becomes part of it.
CLEAVE_API void write_folder(const EmittedFiles& files, const std::filesystem::path& folder);

}  // namespace cleave
