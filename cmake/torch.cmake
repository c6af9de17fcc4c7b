# The operators torch.ops.cleave, in cleave/_torch_ops.so, if the Python that the build is for has torch.
#
# They use torch's stable ABI alone: one build serves every torch from this version on, with CUDA or without.
set(TORCH_OLDEST_MAJOR 2)
set(TORCH_OLDEST_MINOR 10)

cleave_python_package(torch torch_dir)

# Wheels have operators for a torch that is met later: they set both.
if(NOT DEFINED CLEAVE_TORCH_INCLUDE)
  set(CLEAVE_TORCH_INCLUDE "${torch_dir}/include")
  set(CLEAVE_TORCH_LIBRARIES "${torch_dir}/lib/libtorch.so" "${torch_dir}/lib/libtorch_cpu.so")
endif()

set(oldest "${TORCH_OLDEST_MAJOR}.${TORCH_OLDEST_MINOR}")
set(found "no torch")
set(version_header "${CLEAVE_TORCH_INCLUDE}/torch/headeronly/version.h")
if(EXISTS "${version_header}")
  file(STRINGS "${version_header}" found REGEX "\"[0-9.]+")
  string(REGEX MATCH "[0-9.]+" found "${found}")
endif()
if(NOT found VERSION_GREATER_EQUAL oldest)
  message(STATUS "Without torch.ops.cleave: it needs torch ${oldest}, and ${Python_EXECUTABLE} has ${found}")
  return()
endif()
message(STATUS "With torch.ops.cleave, for torch ${found}")

cleave_framework_module(_torch_ops
  SOURCES python/torch_ops INCLUDE "${CLEAVE_TORCH_INCLUDE}" EXPORTS cleave_torch_follow_precision)
math(EXPR target_version "(${TORCH_OLDEST_MAJOR} << 56) + (${TORCH_OLDEST_MINOR} << 48)" OUTPUT_FORMAT HEXADECIMAL)
target_compile_definitions(_torch_ops PRIVATE TORCH_TARGET_VERSION=${target_version})
# libtorch.so has no function of its own, but brings those of libtorch_cuda.so where there are some.
target_link_libraries(_torch_ops PRIVATE ${CLEAVE_TORCH_LIBRARIES})
target_link_options(_torch_ops PRIVATE "LINKER:--no-as-needed")
target_precompile_headers(_torch_ops PRIVATE
  <algorithm> <optional> <string> <vector> <torch/csrc/stable/tensor.h> <torch/csrc/stable/library.h>)
set_target_properties(_torch_ops PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)  # as in python.cmake
