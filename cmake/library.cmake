# The library: target cleave, known to its users as cleave::cleave.

find_package(Threads REQUIRED)

# {fmt}: the system's, or else the headers that pip brings, which are enough.
find_package(fmt QUIET)
if(NOT TARGET fmt::fmt)
  set(fmt_wheels "")
  if(Python_FOUND)
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c "import sys; print(*(p + '/cmeel.prefix/include' for p in sys.path), sep=';')"
      OUTPUT_VARIABLE fmt_wheels OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  endif()
  find_path(FMT_H_DIR fmt/format.h HINTS ${fmt_wheels})
  if(NOT FMT_H_DIR)
    message(FATAL_ERROR
      "The library {fmt} was not found. Install it,\n"
      "  apt-get install libfmt-dev\n"
      "or  ${Python_EXECUTABLE} -m pip install cmeel-fmt\n"
      "or set CMAKE_PREFIX_PATH to where it is installed.")
  endif()
  add_library(fmt::fmt INTERFACE IMPORTED)
  target_include_directories(fmt::fmt INTERFACE "${FMT_H_DIR}")
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
endif()

# What the library's sources and its tests need, and its users do not.
add_library(cleave_private INTERFACE)
target_include_directories(cleave_private INTERFACE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/kernels")
target_link_libraries(cleave_private INTERFACE
  cuda_headers fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
target_compile_definitions(cleave_private INTERFACE CLEAVE_VERSION="${PROJECT_VERSION}")
target_compile_options(cleave_private INTERFACE -Wall -Wextra -Wno-missing-field-initializers)

file(GLOB cleave_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*/*.cpp" "${PROJECT_SOURCE_DIR}/src/plan/*/*.cpp")
file(GLOB frontend_sources CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/src/operands/*.cpp" "${PROJECT_SOURCE_DIR}/src/over_ranks/*.cpp")
file(GLOB problem_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/problem/*.cpp")
list(REMOVE_ITEM cleave_sources ${frontend_sources})
add_library(cleave ${cleave_sources})
add_library(cleave::cleave ALIAS cleave)
cleave_embed_files(cleave FUNCTION embedded_headers ROOT kernels include PATTERN cleave/*.h cleave/core/*.h)
cleave_embed_files(cleave FUNCTION shipped_tuned_tables ROOT src/plan/measured/tuned PATTERN *.txt)
cleave_embed_files(cleave FUNCTION covering_tables ROOT src/plan/measured/covering PATTERN *.txt)
cleave_embed_files(cleave FUNCTION embedded_templates ROOT src/emit/templates PATTERN *.in)
cleave_embed_files(cleave FUNCTION embedded_project ROOT src/emit/project PATTERN *.*)
cleave_embed_files(cleave FUNCTION embedded_host_headers ROOT src PATTERN launch/*.h)
cleave_embed_files(cleave FUNCTION embedded_public_headers ROOT include include
                   PATTERN cleave/conv_layout.h cleave/problem.h)
cleave_embed_files(cleave FUNCTION embedded_torch_headers ROOT python python
                   PATTERN torch_ops/stable.h torch_ops/unstable.h)
cleave_embed_files(cleave FUNCTION embedded_sums ROOT python/cleave/torch/_operators PATTERN sum_to.py)
cleave_embed_files(cleave FUNCTION embedded_functions
                   ROOT python/cleave/_epilogue python/cleave/_epilogue python/cleave/_epilogue
                   PATTERN derivative.py graph.py values.py)
cleave_embed_files(cleave FUNCTION embedded_license ROOT . PATTERN LICENSE)
# Clang counts the steps in which it joins the nodes of the planner's trees, and would stop at a million.
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/plan/cost/fitted.cpp" PROPERTIES
  COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:Clang>:-fconstexpr-steps=10000000>")
if(NOT SKBUILD)  # a wheel holds no symbolic links
  set_target_properties(cleave PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
target_compile_features(cleave PUBLIC cxx_std_20)
target_include_directories(cleave PUBLIC
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_libraries(cleave PRIVATE cleave_private)

# Half of a file's compilation is headers. Each file still includes what it uses: a build with
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON shows it.
set(common_headers <algorithm> <cstdint> <optional> <string> <vector> <fmt/format.h> <fmt/ranges.h>)
target_precompile_headers(cleave PRIVATE ${common_headers})

# It exports what is marked (cleave/core/api.h): of namespace cleave, functions, and classes with what describes them.
cleave_exports(cleave _ZN6cleave* _ZNK6cleave* _ZTIN6cleave* _ZTSN6cleave* _ZTVN6cleave*)
set_target_properties(cleave PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

# What Python's module and torch's operators share, and have inside themselves: from the tensors of a call to a problem,
# and calls that run several. It keeps no state.
add_library(cleave_frontend STATIC ${frontend_sources} ${problem_sources})
target_link_libraries(cleave_frontend PUBLIC cleave_private)
target_precompile_headers(cleave_frontend PRIVATE ${common_headers})
target_include_directories(cleave_frontend PUBLIC "${PROJECT_SOURCE_DIR}/include")
