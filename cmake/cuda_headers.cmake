# Target cuda_headers: cuda.h and nvrtc.h, for their types. Nothing of CUDA is linked; the library opens it at run time.
# Also sets CLEAVE_NVRTC_DIR to the directory of the libnvrtc that came with the headers, if one did.
#
# NVIDIA's wheels come before a toolkit: `make` and pyproject.toml ask for versions of them that will do.

find_package(Python COMPONENTS Interpreter QUIET)
if(Python_FOUND)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import glob, sys; print(*(d for p in sys.path for d in glob.glob(p + '/nvidia/*')), sep=';')"
    OUTPUT_VARIABLE wheels OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  list(SORT wheels ORDER DESCENDING)  # the newest CUDA first, where several are installed
endif()

find_path(CUDA_H_DIR cuda.h HINTS ${wheels} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(NVRTC_H_DIR nvrtc.h HINTS ${wheels} PATH_SUFFIXES include NO_DEFAULT_PATH)
if(NOT CUDA_H_DIR OR NOT NVRTC_H_DIR)
  find_package(CUDAToolkit QUIET)
  find_path(CUDA_H_DIR cuda.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(NVRTC_H_DIR nvrtc.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
endif()
if(NOT CUDA_H_DIR OR NOT NVRTC_H_DIR)
  message(FATAL_ERROR
    "cuda.h and nvrtc.h were not found (headers only; no GPU is needed). Install NVIDIA's wheels,\n"
    "  ${Python_EXECUTABLE} -m pip install nvidia-cuda-runtime nvidia-cuda-nvrtc\n"
    "or the CUDA toolkit, or set CUDA_H_DIR and NVRTC_H_DIR.")
endif()

file(STRINGS "${CUDA_H_DIR}/cuda.h" cuda_version REGEX "^#define CUDA_VERSION [0-9]+$")
string(REGEX MATCH "[0-9]+" cuda_version "${cuda_version}")
if(cuda_version LESS 12000)
  message(FATAL_ERROR
    "${CUDA_H_DIR}/cuda.h says CUDA_VERSION ${cuda_version}; tensor maps need 12000 (CUDA 12.0) or newer. "
    "Install nvidia-cuda-runtime and nvidia-cuda-nvrtc from PyPI, or a newer toolkit.")
endif()

add_library(cuda_headers INTERFACE)
target_include_directories(cuda_headers SYSTEM INTERFACE "${CUDA_H_DIR}" "${NVRTC_H_DIR}")

file(GLOB nvrtc_libraries "${NVRTC_H_DIR}/../lib/libnvrtc.so*" "${NVRTC_H_DIR}/../lib64/libnvrtc.so*")
if(nvrtc_libraries)
  list(GET nvrtc_libraries 0 nvrtc_library)
  cmake_path(GET nvrtc_library PARENT_PATH CLEAVE_NVRTC_DIR)
endif()
