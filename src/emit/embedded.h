// What emitted projects are made of, as text inside the library. embed_files.cmake generates the
// definitions.
#pragma once

#include <span>

namespace cleave {

struct EmbeddedFile {
  const char* name;
  const char* text;
};

/// Of src/emit/templates: "cpp/CMakeLists.txt.in".
std::span<const EmbeddedFile> embedded_templates();

/// Of src/launch, which both the library and emitted projects include: "launch/gemm_grid.h".
std::span<const EmbeddedFile> embedded_host_headers();

/// LICENSE alone.
std::span<const EmbeddedFile> embedded_license();

}  // namespace cleave
