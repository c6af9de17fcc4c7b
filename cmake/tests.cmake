# The C++ tests, and the example as a user would build it: against the installed library.

enable_testing()
include(GoogleTest)
find_package(GTest REQUIRED)

file(GLOB test_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cpp/*.cpp")
add_executable(cleave_tests ${test_sources})
target_link_libraries(cleave_tests PRIVATE cleave::cleave cleave_private GTest::gtest_main)
# A wheel's libnvrtc is on no search path: the Python package points to it, and here the environment does.
gtest_discover_tests(cleave_tests
  DISCOVERY_MODE PRE_TEST
  PROPERTIES ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_append:${CLEAVE_NVRTC_DIR}")

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
             --test-command covariance)
  set_tests_properties(example_cpp PROPERTIES FIXTURES_REQUIRED installed)
endif()
