# What cleave.jax registers with XLA, in cleave/_jax_ops.so, if the Python that the build is for has jaxlib, whose wheel
# has the headers of XLA's foreign function interface. That is a C ABI with a version of its own: one build serves newer
# jaxlibs, with CUDA or without, and every Python.
cleave_python_package(jaxlib jaxlib_dir)

if(NOT EXISTS "${jaxlib_dir}/include/xla/ffi/api/ffi.h")
  message(STATUS "Without cleave.jax: it needs jaxlib, and ${Python_EXECUTABLE} has none")
  return()
endif()
message(STATUS "With cleave.jax, for ${jaxlib_dir}")

file(GLOB jax_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/jax_ops/*.cpp")
add_library(_jax_ops MODULE ${jax_sources})
target_include_directories(_jax_ops SYSTEM PRIVATE "${jaxlib_dir}/include")
target_link_libraries(_jax_ops PRIVATE cleave_frontend cleave::cleave)
cleave_exports(_jax_ops cleave_jax_*)
set_target_properties(_jax_ops PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${package_dir}")

if(SKBUILD)
  set_target_properties(_jax_ops PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS _jax_ops LIBRARY DESTINATION cleave)
endif()
