// What the fake libcuda remembers of a launch.
#pragma once

#include <cstdint>

#include "cleave/kernel/gemm_params.h"

namespace fake_driver {

struct Launch {
  int count = 0;  // of all launches so far
  uint32_t blocks = 0, threads = 0, cluster = 0, shared_bytes = 0;
  bool programmatic = false;
  void* stream = nullptr;
  cleave::GemmParams params;
};

}  // namespace fake_driver

extern "C" const fake_driver::Launch* fake_driver_last_launch();
