// The kernel headers, as text inside the library: NVRTC gets them in memory and needs no include
// path.
#pragma once

#include <span>

namespace cleave {

struct EmbeddedHeader {
  const char* name;  ///< as #include spells it: "cleave/core/enums.h"
  const char* text;
};

/// Every header of kernels/cleave, and those of include/cleave/core. Defined in a source that embed_kernels.cmake
/// generates.
std::span<const EmbeddedHeader> embedded_headers();

}  // namespace cleave
