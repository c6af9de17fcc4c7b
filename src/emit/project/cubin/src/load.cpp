#include "config.h"
#include "driver.h"

namespace emitted::operation {

namespace {

LoadedKernel load_image(const void* image, const char* entry) {
  LoadedKernel loaded;
  DRIVER_CALL(cuModuleLoadData, &loaded.module, image);
  DRIVER_CALL(cuModuleGetFunction, &loaded.function, loaded.module, entry);
  return loaded;
}

}  // namespace

LoadedKernel load(const Kernel& kernel) {
  return load_image(kernel.image, kEntry);
}

LoadedKernel load_reduce(const Kernel& kernel) {
  return load_image(kernel.reduce_image, kReduceEntry);
}

}  // namespace emitted::operation
