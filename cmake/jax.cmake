# What cleave.jax registers with XLA, in cleave/_jax_ops.so, if the Python that the build is for has jaxlib, whose wheel
# has the headers of XLA's foreign function interface. That is a C ABI with a version of its own: one build serves newer
# jaxlibs, with CUDA or without, and every Python.
cleave_python_package(jaxlib jaxlib_dir)

# Wheels have it for a jaxlib that is met later: they set this.
if(NOT DEFINED CLEAVE_JAX_INCLUDE)
  set(CLEAVE_JAX_INCLUDE "${jaxlib_dir}/include")
endif()
if(NOT EXISTS "${CLEAVE_JAX_INCLUDE}/xla/ffi/api/ffi.h")
  message(STATUS "Without cleave.jax: it needs jaxlib, and ${Python_EXECUTABLE} has none")
  return()
endif()
message(STATUS "With cleave.jax, for ${CLEAVE_JAX_INCLUDE}")

cleave_framework_module(_jax_ops SOURCES python/jax_ops INCLUDE "${CLEAVE_JAX_INCLUDE}" EXPORTS cleave_jax_*)
