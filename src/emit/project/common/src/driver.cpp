#include "driver.h"

#include <dlfcn.h>

namespace emitted::operation {

void* find_in_driver(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // and never closed
  if (library == nullptr) throw std::runtime_error(std::string("no NVIDIA driver can be used: ") + dlerror());
  void* const function = dlsym(library, name);
  if (function == nullptr)
    throw std::runtime_error(std::string("the NVIDIA driver lacks ") + name + "; install a later one");
  return function;
}

}  // namespace emitted::operation
