# Where packages of the Python that the build is for lie.

# Packages that come or go change its folder, which configures anew.
function(cleave_python_package name out)
  # Found without being imported, which takes seconds. pip builds wheels in an environment of their own, which these
  # variables make; the package to build for is the one outside.
  set(environment "")
  if(SKBUILD)
    set(environment "${CMAKE_COMMAND}" -E env --unset=PYTHONPATH --unset=PYTHONNOUSERSITE)
  endif()
  execute_process(
    COMMAND ${environment} "${Python_EXECUTABLE}" -c
"import importlib.util, sysconfig
package = importlib.util.find_spec('${name}')
print(sysconfig.get_path('purelib'), package.submodule_search_locations[0] if package else '', sep=';')"
    OUTPUT_VARIABLE places OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  list(GET places 0 site_packages)
  list(GET places 1 folder)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${site_packages}")
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()
