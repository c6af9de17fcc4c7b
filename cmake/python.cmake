# The extension module cleave._core and its type stub. In a checkout both are placed in python/cleave,
# which makes that folder the importable package; a wheel takes them from the build folder, and has libcleave beside
# them, which all its modules share.

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
execute_process(
  COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

if(SKBUILD)
  set(package_dir "${PROJECT_BINARY_DIR}/python/cleave")
else()
  set(package_dir "${PROJECT_SOURCE_DIR}/python/cleave")
endif()

file(GLOB core_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/src/*/*.cpp")
# STABLE_ABI: where scikit-build-core asks for it (wheel.py-api). NOMINSIZE: the time of a call counts, its bytes do
# not.
nanobind_add_module(_core STABLE_ABI NOMINSIZE ${core_sources})
target_include_directories(_core PRIVATE "${PROJECT_SOURCE_DIR}/python/src")
target_link_libraries(_core PRIVATE cleave_frontend cleave::cleave)
target_precompile_headers(_core PRIVATE ${common_headers} <nanobind/nanobind.h>)
# Four files are compiled as one: what they share of nanobind's templates is most of each.
set_target_properties(_core PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
cleave_exports(_core PyInit__core)
target_link_options(_core PRIVATE "LINKER:--wrap=__gxx_personality_v0")  # forced_unwind.cpp says why
set_target_properties(_core PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${package_dir}")
# The stub is made by importing the module: what is built for other processors has the stub of another build.
if(DEFINED CLEAVE_CORE_STUB)
  configure_file("${CLEAVE_CORE_STUB}" "${package_dir}/_core.pyi" COPYONLY)
else()
  nanobind_add_stub(_core_stub
    MODULE _core OUTPUT "${package_dir}/_core.pyi" PYTHON_PATH "${package_dir}" DEPENDS _core)
endif()

if(SKBUILD)
  set_target_properties(_core PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS cleave _core LIBRARY DESTINATION cleave)
  install(FILES "${package_dir}/_core.pyi" DESTINATION cleave)
endif()
