# What a shared library exports, by the linker's names: patterns. All else stays inside, the C++ library's functions
# above all: some compilers link that one statically, and exported it would be mixed with the copy that a process like
# Python with torch already has.
#
#   cleave_exports(_core PyInit__core)

function(cleave_exports target)
  list(JOIN ARGN "; " patterns)
  set(script "${PROJECT_BINARY_DIR}/generated/${target}.exports")
  file(CONFIGURE OUTPUT "${script}" CONTENT "{ global: ${patterns}; local: *; };\n" @ONLY)
  target_link_options(${target} PRIVATE "LINKER:--version-script=${script}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${script}")
endfunction()
