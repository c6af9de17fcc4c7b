// How the test calls a project that was emitted and built: a library with this one function.
#pragma once

#include "cleave/gemm.h"

namespace fake_driver {

/// Sizes of a call, and what it found.
struct Probe {
  cleave::GemmProblem problem;  // sizes alone are read
  cleave::GemmArguments arguments;
  void* counters = nullptr;
  void* partials = nullptr;
  void* stream = nullptr;

  char reason[512] = {};  // why the sizes are not served; then nothing was launched
  size_t workspace_size = 0, counter_size = 0;
  size_t bytes_asked = 0;  // of workspace, by the launch
};

using ProbeFunction = void(Probe&);

}  // namespace fake_driver
