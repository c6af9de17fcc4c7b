# A toolchain file: the compiler of PyPI's ziglang, which brings the C and C++ libraries of every processor, and links
# with an old glibc's names. CLEAVE_ZIG is its executable, CLEAVE_PROCESSOR what to build for.
#
# Its C++ library is libc++, and lies inside each library of a wheel; runtime.cmake makes these go together.

set(CLEAVE_GLIBC 2.28)  # that of manylinux_2_28: Debian 10, RHEL 8, Ubuntu 18.10

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CLEAVE_ZIG CLEAVE_PROCESSOR)
if(NOT CLEAVE_PROCESSOR STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR "${CLEAVE_PROCESSOR}")
endif()

set(CLEAVE_ZIG_TARGET "${CLEAVE_PROCESSOR}-linux-gnu.${CLEAVE_GLIBC}")
set(CMAKE_CXX_COMPILER "${CLEAVE_ZIG}" c++)
string(CONCAT CMAKE_CXX_FLAGS_INIT "-target ${CLEAVE_ZIG_TARGET} -ffunction-sections -fdata-sections "
       "-Wno-missing-braces -Wno-macro-redefined")
foreach(kind SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-s -Wl,--gc-sections")
endforeach()

foreach(tool ar ranlib)
  string(TOUPPER ${tool} name)
  set(CMAKE_${name} "${CMAKE_BINARY_DIR}/zig-${tool}")
  file(WRITE "${CMAKE_${name}}" "#!/bin/sh\nexec '${CLEAVE_ZIG}' ${tool} \"$@\"\n")
  file(CHMOD "${CMAKE_${name}}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()

set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
set(CMAKE_PROJECT_cleave_INCLUDE "${CMAKE_CURRENT_LIST_DIR}/runtime.cmake")
