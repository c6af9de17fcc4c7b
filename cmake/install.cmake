# `cmake --install`: the shared library, every header and what find_package(cleave) reads.

include(CMakePackageConfigHelpers)

set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/cleave")

install(TARGETS cleave EXPORT cleave_targets)
install(DIRECTORY include/cleave DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")
install(EXPORT cleave_targets NAMESPACE cleave:: FILE cleaveConfig.cmake DESTINATION "${config_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/cleaveConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cleaveConfigVersion.cmake" DESTINATION "${config_dir}")
