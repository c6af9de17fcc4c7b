# Embeds every header of kernels/cleave in the library, so that a kernel compiles without an include path.
#
#   include(cmake/embed_kernels.cmake)
#   cleave_embed_kernels(target)       # adds the generated source; it follows changes of the headers
#
# The generation is this same file in script mode: cmake -DKERNELS=dir -DOUTPUT=file -P embed_kernels.cmake

set(_embed_kernels_script "${CMAKE_CURRENT_LIST_FILE}")

function(cleave_embed_kernels target)
  set(kernels "${PROJECT_SOURCE_DIR}/kernels")
  set(output "${PROJECT_BINARY_DIR}/generated/embedded_headers.cpp")
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${kernels}/cleave/*.h")
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DKERNELS=${kernels}" "-DOUTPUT=${output}"
            -P "${_embed_kernels_script}"
    DEPENDS ${headers} "${_embed_kernels_script}"
    COMMENT "Embedding kernel headers"
    VERBATIM)
  target_sources(${target} PRIVATE "${output}")
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

# The standard only promises 65536 characters per literal, and some compilers stop at 16 KiB: adjacent literals join.
set(chunk_size 8000)

file(GLOB_RECURSE headers RELATIVE "${KERNELS}" "${KERNELS}/cleave/*.h")
list(SORT headers)

set(entries "")
foreach(header IN LISTS headers)
  file(READ "${KERNELS}/${header}" text)
  string(LENGTH "${text}" length)
  set(literals "")
  set(position 0)
  while(position LESS length)
    string(SUBSTRING "${text}" ${position} ${chunk_size} chunk)
    string(APPEND literals "\n     R\"_cleave_(${chunk})_cleave_\"")
    math(EXPR position "${position} + ${chunk_size}")
  endwhile()
  string(APPEND entries "    {\"${header}\",${literals}},\n")
endforeach()

file(WRITE "${OUTPUT}.new" "// Generated from kernels/cleave by embed_kernels.cmake.
#include \"jit/embedded.h\"

namespace cleave {
namespace {
constexpr EmbeddedHeader headers[] = {
${entries}};
}  // namespace

std::span<const EmbeddedHeader> embedded_headers() { return headers; }

}  // namespace cleave
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
