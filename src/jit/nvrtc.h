// NVRTC, opened when first needed: the library neither links it nor needs it to plan or to run from
// the cache. Where there are two, the newest that compiles what the driver can load.
#pragma once

#include <nvrtc.h>

#include <span>
#include <string>
#include <vector>

#include "base/embedded.h"
#include "cleave/core/api.h"

namespace cleave {

struct NvrtcVersion {
  int major = 0;
  int minor = 0;
};

/// A further directory to look for libnvrtc in: the Python package names those of NVIDIA's wheels.
/// Thread-safe; has no effect once NVRTC has been found.
CLEAVE_TOOLS void add_library_search_path(std::string directory);

/// The newest major version of CUDA whose cubins the driver loads; without a driver, the newest that there is, since
/// what is compiled is for other machines then.
int loadable_major();

/// Whether `nvrtc_compile` can work. Never throws.
bool nvrtc_available() noexcept;

/// The functions below throw Error(compiler) if NVRTC cannot be found, saying where it was looked
/// for.
CLEAVE_TOOLS NvrtcVersion nvrtc_version();

/// The file it was loaded from, for `cleave info`.
CLEAVE_TOOLS std::string nvrtc_path();

/// Which build of its version it is, as build_of() has it: updates of one version compile
/// differently.
std::string nvrtc_build();

struct NvrtcOutput {
  std::string cubin;
  std::string log;  ///< warnings, and ptxas's statistics if the options ask for them
};

/// `options` must name a real architecture (sm_XX), since the result is a cubin.
/// Throws Error(compiler) with the first lines of NVRTC's log if it refuses the source.
NvrtcOutput nvrtc_compile(const std::string& source, std::span<const EmbeddedFile> headers,
                          const std::vector<std::string>& options);

}  // namespace cleave
