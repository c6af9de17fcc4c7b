#include "config.h"
#include "driver.h"

namespace emitted::operation {

LoadedKernel load(const Kernel& kernel) {
  LoadedKernel loaded;
  check(driver().cuModuleLoadData(&loaded.module, kernel.image), "cuModuleLoadData");
  check(driver().cuModuleGetFunction(&loaded.function, loaded.module, kEntry), "cuModuleGetFunction");
  return loaded;
}

}  // namespace emitted::operation
