# A module of Cleave's that a framework loads, beside cleave._core: functions on its own arrays.
#
#   cleave_framework_module(_jax_ops SOURCES python/jax_ops INCLUDE "${folder}" EXPORTS cleave_jax_*)
#
# It is linked to what every front end needs, and lies where python.cmake has `package_dir`.
function(cleave_framework_module target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCES;INCLUDE" "EXPORTS")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${arg_SOURCES}/*.cpp")
  add_library(${target} MODULE ${sources})
  target_include_directories(${target} SYSTEM PRIVATE "${arg_INCLUDE}")
  target_link_libraries(${target} PRIVATE cleave_frontend cleave::cleave)
  cleave_exports(${target} ${arg_EXPORTS})
  set_target_properties(${target} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${package_dir}")
  if(SKBUILD)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
    install(TARGETS ${target} LIBRARY DESTINATION cleave)
  endif()
endfunction()
