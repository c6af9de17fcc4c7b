# What lets several libraries, each with a libc++ of its own inside, throw errors to one another and live in a process
# with libstdc++.

cmake_path(GET CLEAVE_ZIG PARENT_PATH zig_dir)

# Types of errors are the same if their names are. libc++ would compare addresses, of which each library has its own.
add_compile_definitions(_LIBCPP_TYPEINFO_COMPARISON_IMPLEMENTATION=2)
set(abi "${zig_dir}/lib/libcxxabi/src")
add_library(cleave_typeinfo STATIC "${abi}/private_typeinfo.cpp")  # found before zig's own
target_include_directories(cleave_typeinfo PRIVATE "${abi}")
target_compile_definitions(cleave_typeinfo PRIVATE _LIBCXXABI_BUILDING_LIBRARY)
target_compile_features(cleave_typeinfo PRIVATE cxx_std_23)
target_compile_options(cleave_typeinfo PRIVATE -fvisibility=hidden)
link_libraries(cleave_typeinfo)

# nanobind 3.1 prints by it, and with the limited API no other header brings it.
add_compile_options("SHELL:-include cstdio")

# Libraries that are met at run time, as far as linking needs them: a name, and functions that only have to be there.
function(cleave_name_library variable file)
  list(TRANSFORM ARGN REPLACE "(.+)" "void \\1(void) {}\n" OUTPUT_VARIABLE functions)
  list(JOIN functions "" text)
  set(source "${PROJECT_BINARY_DIR}/names/${file}.c")
  set(library "${PROJECT_BINARY_DIR}/names/${file}")
  file(WRITE "${source}" "${text}")
  execute_process(
    COMMAND "${CLEAVE_ZIG}" cc -target "${CLEAVE_ZIG_TARGET}" -shared -nostdlib "-Wl,-soname,${file}"
            "${source}" -o "${library}"
    COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} "${library}" PARENT_SCOPE)
endfunction()

# The system's unwinder, for all: an error passes from frames that one unwinder knows to frames of another.
set(unwinder
  Backtrace DeleteException FindEnclosingFunction ForcedUnwind GetCFA GetDataRelBase GetGR GetIP GetIPInfo
  GetLanguageSpecificData GetRegionStart GetTextRelBase RaiseException Resume Resume_or_Rethrow SetGR SetIP)
list(TRANSFORM unwinder PREPEND "_Unwind_")
cleave_name_library(gcc_s libgcc_s.so.1 ${unwinder})
add_link_options("${gcc_s}")  # not a library to CMake, which would have it found here at run time

# torch's operators throw libstdc++'s errors (python/torch_ops/errors.h).
cleave_name_library(stdcxx libstdc++.so.6 _ZSt21__throw_runtime_errorPKc)
cleave_name_library(torch libtorch.so)
cleave_name_library(torch_cpu libtorch_cpu.so)
set(CLEAVE_TORCH_LIBRARIES "${torch}" "${torch_cpu}" "${stdcxx}")
