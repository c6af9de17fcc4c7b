// What Python exports and its stable ABI leaves out, or calls by another name from some version on: one build of the
// module serves every Python from 3.12 on, and finds such functions by name in the one that it is in.
#pragma once

#include <dlfcn.h>

namespace cleave::python {

/// Null where this Python has no such function.
template <class Function>
Function* exported_by_python(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace cleave::python
