// Which build of a shared library this process has loaded.
#pragma once

#include <string>

namespace cleave {

/// The library that contains `address`, as one string: the build id that its linker gave it, or else
/// the file's path, size and time. Reads what is mapped, in microseconds. Empty where there is no library.
std::string build_of(const void* address);

}  // namespace cleave
