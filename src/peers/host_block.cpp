#include "peers/host_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/refuse.h"

namespace cleave {
namespace {

[[noreturn]] void fail(const char* call, size_t bytes) {
  refuse(ErrorCode::unsupported, "{} of {} bytes for a group failed: {}", call, bytes, std::strerror(errno));
}

}  // namespace

HostBlock::HostBlock(size_t bytes) : file_(memfd_create("cleave group", MFD_CLOEXEC)), bytes_(bytes) {
  if (file_.get() < 0) fail("memfd_create", bytes);
  if (ftruncate(file_.get(), off_t(bytes)) != 0) fail("ftruncate", bytes);
  map(file_.get());
}

HostBlock::HostBlock(const Descriptor& from, size_t bytes) : bytes_(bytes) {
  map(from.get());
}

HostBlock::~HostBlock() {
  munmap(data_, bytes_);
}

Descriptor HostBlock::exported() const {
  return Descriptor(fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
}

void HostBlock::map(int descriptor) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data_ == MAP_FAILED) fail("mmap", bytes_);
}

}  // namespace cleave
