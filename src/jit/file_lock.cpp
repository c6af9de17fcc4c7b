#include "jit/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace cleave {

using Clock = std::chrono::steady_clock;

FileLock::FileLock(const PrivateDirectory& directory, std::string name, std::chrono::milliseconds timeout)
    : directory_(directory), name_(std::move(name)) {
  // flock has no timed wait, so poll: often at first, because most kernels compile in a fraction of
  // a second.
  const auto deadline = Clock::now() + timeout;
  auto pause = std::chrono::milliseconds(2);
  while (try_acquire() == Attempt::busy) {
    if (Clock::now() >= deadline) {
      timed_out_ = true;
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

FileLock::Attempt FileLock::try_acquire() {
  Descriptor file(openat(directory_.descriptor(), name_.c_str(),
                         O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600));
  if (!file) return Attempt::impossible;
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK || errno == EINTR ? Attempt::busy : Attempt::impossible;
  }
  // The holder removes the file before it lets go: a lock on a removed file excludes nobody.
  struct stat opened = {};
  const auto named = directory_.status(name_);
  const bool same =
      fstat(file.get(), &opened) == 0 && named && opened.st_dev == named->st_dev && opened.st_ino == named->st_ino;
  if (!same) return Attempt::busy;
  file_ = std::move(file);
  return Attempt::acquired;
}

FileLock::~FileLock() {
  if (!held()) return;
  directory_.remove_file(name_);
  flock(file_.get(), LOCK_UN);  // a child forked meanwhile shares the lock, and closing alone would
                                // leave it locked
}

}  // namespace cleave
