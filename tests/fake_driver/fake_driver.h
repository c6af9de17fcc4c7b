// What the fake libcuda remembers of a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "cleave/config/gemm_params.h"

namespace fake_driver {

struct Launch {
  int count = 0;  // of all launches so far
  uint32_t blocks = 0, threads = 0, cluster = 0, shared_bytes = 0;
  bool programmatic = false;
  void* stream = nullptr;
  alignas(cleave::TensorMap) std::byte memory[32764];  // of the parameters

  /// The parameters, or what they begin with.
  template <class Params = cleave::GemmParams>
  Params& params() {
    return *reinterpret_cast<Params*>(memory);
  }
  template <class Params = cleave::GemmParams>
  const Params& params() const {
    return *reinterpret_cast<const Params*>(memory);
  }
};

/// What a stream was given: a launch, or a copy, which is not made.
struct Work {
  void* stream = nullptr;
  void *to = nullptr, *from = nullptr;  // of a copy
  size_t bytes = 0;
  std::set<int> done_before;  // the numbers of what is
};

}  // namespace fake_driver

extern "C" const fake_driver::Launch* fake_driver_last_launch();

/// The last one of the kernel that joins partial results, which is none of the above.
extern "C" const fake_driver::Launch* fake_driver_last_reduce();

/// How many bytes the parameters of launches to come have; those of a product, until it is called.
extern "C" void fake_driver_set_params_bytes(size_t bytes);

/// All streams are captured from now on, as capture `number`; 0: none is. And a node of somebody else's in it.
extern "C" void fake_driver_set_capture(uint64_t number);
extern "C" void fake_driver_add_node();

/// The number of the streams that are made from now on: all have the same handle.
extern "C" void fake_driver_set_stream_id(uint64_t id);

/// The same for one stream, whatever the others are in.
extern "C" void fake_driver_set_capture_of(void* stream, uint64_t number);

/// One launch fails behind so many that do not.
extern "C" void fake_driver_fail_after(int launches);

/// What streams were given: launches, and copies between places of the device, by numbers from 0 on.
extern "C" int fake_driver_work_count();
extern "C" const fake_driver::Work* fake_driver_work(int number);
/// Whether what the stream is given next begins when that is done.
extern "C" bool fake_driver_is_behind(void* stream, int number);
