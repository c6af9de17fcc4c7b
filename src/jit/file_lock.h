// A lock between processes (and threads) that is a file while it is held.
#pragma once

#include <chrono>
#include <string>

#include "jit/private_directory.h"

namespace cleave {

class FileLock {
 public:
  /// Waits at most `timeout`. Where no lock can be had (a read-only or full directory, a file
  /// system without locks, a stuck holder), the object holds nothing and the caller goes on
  /// without. `directory` must outlive it.
  FileLock(const PrivateDirectory& directory, std::string name, std::chrono::milliseconds timeout);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return bool(file_); }

  /// Whether another one held it to the end.
  bool timed_out() const { return timed_out_; }

 private:
  enum class Attempt { acquired, busy, impossible };
  Attempt try_acquire();

  const PrivateDirectory& directory_;
  std::string name_;
  Descriptor file_;
  bool timed_out_ = false;
};

}  // namespace cleave
