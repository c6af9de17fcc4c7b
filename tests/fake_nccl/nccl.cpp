// The functions of libnccl that the library finds at run time, with NCCL's signatures.
#include "nccl.h"

using cleave::FakeCommunicator;

extern "C" {

int ncclCommUserRank(const FakeCommunicator* communicator, int* rank) {
  *rank = communicator->rank;
  return 0;
}

int ncclCommCount(const FakeCommunicator* communicator, int* count) {
  *count = communicator->size;
  return 0;
}

int ncclCommCuDevice(const FakeCommunicator* communicator, int* device) {
  *device = communicator->device;
  return 0;
}

int ncclAllGather(const void* own, void* all, size_t count, int type, FakeCommunicator* communicator, void*) {
  constexpr int kChar = 0, kInvalidArgument = 4;
  return type == kChar ? communicator->all_gather(own, all, count) : kInvalidArgument;
}
}
