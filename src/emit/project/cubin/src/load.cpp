#include "config.h"
#include "driver.h"

namespace emitted::operation {

LoadedKernel load(const Kernel& kernel) {
  LoadedKernel loaded;
  DRIVER_CALL(cuModuleLoadData, &loaded.module, kernel.image);
  DRIVER_CALL(cuModuleGetFunction, &loaded.function, loaded.module, kEntry);
  return loaded;
}

}  // namespace emitted::operation
