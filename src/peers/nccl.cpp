#include "peers/nccl.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstring>
#include <optional>

#include "base/refuse.h"
#include "cleave/problem.h"
#include "runtime/context.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

constexpr size_t kTextBytes = 1024;
constexpr int kChar = 0;  // ncclChar, of ncclDataType_t

template <class... Parameters>
void call(const char* name, Parameters... arguments) {
  constexpr const char* kLibrary = "libnccl.so.2";
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);  // the one that made the communicator
  if (library == nullptr) library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) refuse(ErrorCode::unsupported, "{} of {} was not found: {}", name, kLibrary, dlerror());
  if (const int result = reinterpret_cast<int (*)(Parameters...)>(found)(arguments...); result != 0)
    refuse(ErrorCode::driver, "{} of {} says {}, an ncclResult_t", name, kLibrary, result);
}

/// What NCCL and the host both see.
class Texts {
 public:
  Texts(int device, size_t count) : device_(device) {
    if (device_ == kCpu) {
      data_ = new char[count * kTextBytes]();
      return;
    }
    void* data = nullptr;
    check(driver().mem_host_alloc(&data, count * kTextBytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc for texts");
    data_ = static_cast<char*>(data);
    std::memset(data_, 0, count * kTextBytes);
  }
  ~Texts() {
    if (device_ == kCpu) {
      delete[] data_;
    } else {
      driver().mem_free_host(data_);
    }
  }
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;

  char* at(int rank) const { return data_ + size_t(rank) * kTextBytes; }

 private:
  const int device_;
  char* data_ = nullptr;
};

}  // namespace

NcclRanks::NcclRanks(void* communicator) : communicator_(communicator) {
  if (communicator == nullptr) refuse_value("comm is null; it must be a communicator of NCCL's");
  call("ncclCommUserRank", communicator, &rank_);
  call("ncclCommCount", communicator, &size_);
  call("ncclCommCuDevice", communicator, &device_);
}

std::vector<std::string> NcclRanks::all_gather(const std::string& own) const {
  std::optional<ContextGuard> context;
  if (device_ != kCpu) context.emplace(device_);
  const Texts sent(device_, 1), received(device_, size_t(size_));
  own.copy(sent.at(0), kTextBytes - 1);
  const auto from = static_cast<const void*>(sent.at(0));
  const auto to = static_cast<void*>(received.at(0));
  call("ncclAllGather", from, to, kTextBytes, kChar, communicator_, static_cast<void*>(nullptr));
  if (device_ != kCpu) check(driver().stream_synchronize(nullptr), "cuStreamSynchronize after ncclAllGather");
  std::vector<std::string> texts;
  for (int r = 0; r < size_; ++r) texts.emplace_back(received.at(r));
  return texts;
}

std::shared_ptr<Group> Group::from_nccl(void* comm, size_t bytes) {
  const NcclRanks ranks(comm);
  return share(ranks.rank(), ranks.size(), ranks.device(), bytes,
               [&](const std::string& own) { return ranks.all_gather(own); });
}

}  // namespace cleave
