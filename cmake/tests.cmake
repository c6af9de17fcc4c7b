# The C++ tests, and the examples as a user would build it: against the installed library.

enable_testing()
include(GoogleTest)
find_package(GTest REQUIRED)

file(GLOB test_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cpp/*.cpp")
# The library's own objects, since libcleave exports its interface alone.
add_library(cleave_tested INTERFACE)
target_sources(cleave_tested INTERFACE "$<TARGET_OBJECTS:cleave>")
target_include_directories(cleave_tested INTERFACE "${PROJECT_SOURCE_DIR}/include")
target_link_libraries(cleave_tested INTERFACE cleave_frontend cleave_private)
add_executable(cleave_tests ${test_sources})
target_link_libraries(cleave_tests PRIVATE cleave_tested GTest::gtest_main)
target_precompile_headers(cleave_tests PRIVATE ${common_headers} <map> <random> <set> <thread> <gtest/gtest.h>)
target_compile_options(cleave_tests PRIVATE -O1)  # a third less to compile than by -O2
set(test_cache "${PROJECT_BINARY_DIR}/cache")  # tests/conftest.py has the same
set_source_files_properties(tests/cpp/cache_directory.cpp PROPERTIES
  COMPILE_DEFINITIONS CLEAVE_TEST_CACHE="${test_cache}")
set_source_files_properties(tests/cpp/nvrtc_choice_test.cpp PROPERTIES
  COMPILE_DEFINITIONS CLEAVE_TEST_FAKES="${PROJECT_BINARY_DIR}/fake_driver")
# It compiles device code, whose "unroll" the host's compiler does not know; GCC 12 heeds no pragma about that.
set_source_files_properties(tests/cpp/device_code_test.cpp PROPERTIES COMPILE_OPTIONS -Wno-unknown-pragmas)
# A wheel's libnvrtc is on no search path: the Python package points to it, and here the environment does.
gtest_discover_tests(cleave_tests
  DISCOVERY_MODE PRE_TEST
  PROPERTIES ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_append:${CLEAVE_NVRTC_DIR}")

# Every kernel of the catalogue, by `ctest -C all_kernels` alone (`make test-kernels`): minutes of many cores.
foreach(gpu Hopper Ampere)
  add_test(NAME all_kernels_for_${gpu}
           COMMAND cleave_tests --gtest_also_run_disabled_tests
                   "--gtest_filter=Kernels.DISABLED_AllFor${gpu}CompileWithoutSpills"
           CONFIGURATIONS all_kernels)
  set_tests_properties(all_kernels_for_${gpu} PROPERTIES
    ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_append:${CLEAVE_NVRTC_DIR}")
endforeach()

# Shows that an edit of the kernels leaves their cubins as they are: built when it is asked for.
add_executable(kernel_digests EXCLUDE_FROM_ALL tools/kernel_digests.cpp)
target_include_directories(kernel_digests PRIVATE tests/cpp)
target_link_libraries(kernel_digests PRIVATE cleave_tested)

if(BUILD_SHARED_LIBS)
  set(prefix "${PROJECT_BINARY_DIR}/prefix")
  add_test(NAME install
           COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --prefix "${prefix}")
  set_tests_properties(install PROPERTIES FIXTURES_SETUP installed)

  add_test(NAME example_cpp
           COMMAND "${CMAKE_CTEST_COMMAND}"
             --build-and-test "${PROJECT_SOURCE_DIR}/examples/cpp" "${PROJECT_BINARY_DIR}/example_cpp"
             --build-generator "${CMAKE_GENERATOR}"
             --build-options "-DCMAKE_PREFIX_PATH=${prefix}"
             --test-command "${CMAKE_CTEST_COMMAND}" --output-on-failure)
  set_tests_properties(example_cpp PROPERTIES
    FIXTURES_REQUIRED installed
    ENVIRONMENT "CLEAVE_CACHE_DIR=${test_cache}")
endif()

# What emitted projects launch, on a driver and a compiler that are not real: a process of its own, since the library
# opens both once.
add_library(fake_cuda SHARED tests/fake_driver/cuda.cpp)
set_target_properties(fake_cuda PROPERTIES
  OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fake_driver")
target_include_directories(fake_cuda PRIVATE include kernels)
target_link_libraries(fake_cuda PRIVATE cuda_headers ${CMAKE_DL_LIBS})
target_link_options(fake_cuda PRIVATE "LINKER:--exclude-libs,ALL")  # as in library.cmake
# Two builds of one version, and one whose linker gave it no id.
foreach(build IN ITEMS "" _other _anonymous)
  add_library(fake_nvrtc${build} SHARED tests/fake_driver/nvrtc.cpp)
  set_target_properties(fake_nvrtc${build} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fake_driver")
  target_link_libraries(fake_nvrtc${build} PRIVATE cuda_headers)
  add_dependencies(cleave_tests fake_nvrtc${build})
endforeach()
add_library(fake_nccl SHARED tests/fake_nccl/nccl.cpp)
set_target_properties(fake_nccl PROPERTIES
  OUTPUT_NAME nccl SOVERSION 2 LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fake_nccl")
set_property(SOURCE tests/cpp/group_from_nccl_test.cpp APPEND PROPERTY
  COMPILE_DEFINITIONS CLEAVE_FAKE_NCCL="$<TARGET_FILE:fake_nccl>")
add_dependencies(cleave_tests fake_nccl)
target_link_options(fake_nvrtc PRIVATE LINKER:--build-id=0x00000001)
target_link_options(fake_nvrtc_other PRIVATE LINKER:--build-id=0x00000002)
target_link_options(fake_nvrtc_anonymous PRIVATE LINKER:--build-id=none)
add_dependencies(cleave_tests fake_cuda)

# How emitted projects are compiled there, and what of theirs is compiled once (a compiler that does not take it so
# includes standard.h instead).
set(probe_flags -std=c++20 -O0 -Wall -Wextra -Wpedantic -Werror -fPIC
  -fvisibility=hidden -fvisibility-inlines-hidden)
set(probe_standard "${PROJECT_BINARY_DIR}/fake_driver/standard.h")
configure_file(tests/fake_driver/standard.h "${probe_standard}" COPYONLY)
add_custom_command(OUTPUT "${probe_standard}.gch" VERBATIM
  COMMAND "${CMAKE_CXX_COMPILER}" ${probe_flags} -x c++-header "${probe_standard}" -o "${probe_standard}.gch"
  DEPENDS "${probe_standard}")
list(JOIN probe_flags " " probe_flags)

add_executable(emit_launch_tests "${probe_standard}.gch"
  tests/fake_driver/beside_test.cpp tests/fake_driver/sum_in_parts_test.cpp tests/fake_driver/gather_in_parts_test.cpp
  tests/fake_driver/emit_launch_test.cpp tests/fake_driver/emit_conv_launch_test.cpp
  tests/fake_driver/emit_workspaces_test.cpp tests/fake_driver/kernel_sequence_test.cpp
  tests/fake_driver/conv_product_launch_test.cpp tests/fake_driver/prepared_plan_test.cpp
  tests/fake_driver/rules_test.cpp tests/fake_driver/two_heights_launch_test.cpp)
target_link_libraries(emit_launch_tests PRIVATE
  cleave_tested fake_cuda GTest::gtest_main)
target_compile_options(emit_launch_tests PRIVATE -O0)  # half of what -O2 takes to compile, and it hardly computes
target_include_directories(emit_launch_tests PRIVATE tests/cpp)
target_compile_definitions(emit_launch_tests PRIVATE
  CLEAVE_TEST_CXX="${CMAKE_CXX_COMPILER}"
  CLEAVE_TEST_CUDA="${CUDA_H_DIR}"
  CLEAVE_TEST_SOURCE="${PROJECT_SOURCE_DIR}"
  CLEAVE_TEST_FLAGS="${probe_flags}"
  CLEAVE_TEST_STANDARD="${probe_standard}"
  CLEAVE_TEST_COMPILER="$<TARGET_FILE:fake_nvrtc>"
  CLEAVE_TEST_CACHE="${PROJECT_BINARY_DIR}/fake_driver/cache")
add_dependencies(emit_launch_tests fake_nvrtc)
gtest_discover_tests(emit_launch_tests DISCOVERY_MODE PRE_TEST)
