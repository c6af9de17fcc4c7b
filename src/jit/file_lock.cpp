#include "jit/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace cleave {

using Clock = std::chrono::steady_clock;

FileLock::FileLock(std::filesystem::path path, std::chrono::milliseconds timeout)
    : path_(std::move(path)) {
  // flock has no timed wait, so poll: often at first, because most kernels compile in a fraction of
  // a second.
  const auto deadline = Clock::now() + timeout;
  auto pause = std::chrono::milliseconds(2);
  while (try_acquire() == Attempt::busy && Clock::now() < deadline) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

FileLock::Attempt FileLock::try_acquire() {
  const int descriptor = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return Attempt::impossible;
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    const bool busy = errno == EWOULDBLOCK || errno == EINTR;
    close(descriptor);
    return busy ? Attempt::busy : Attempt::impossible;
  }
  // The holder removes the file before it lets go: a lock on a removed file excludes nobody.
  struct stat opened = {}, named = {};
  const bool same = fstat(descriptor, &opened) == 0 && stat(path_.c_str(), &named) == 0 &&
                    opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  if (!same) {
    close(descriptor);
    return Attempt::busy;
  }
  descriptor_ = descriptor;
  return Attempt::acquired;
}

FileLock::~FileLock() {
  if (!held()) return;
  unlink(path_.c_str());
  flock(descriptor_, LOCK_UN);  // a child forked meanwhile shares the lock, and closing alone would
                                // leave it locked
  close(descriptor_);
}

}  // namespace cleave
