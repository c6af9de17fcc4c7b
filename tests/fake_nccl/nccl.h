// What a communicator of the fake libnccl is: its functions ask the test.
#pragma once

#include <cstddef>
#include <functional>

namespace cleave {

struct FakeCommunicator {
  int rank, size, device;
  /// An ncclResult_t.
  std::function<int(const void* own, void* all, size_t bytes)> all_gather;
};

}  // namespace cleave
