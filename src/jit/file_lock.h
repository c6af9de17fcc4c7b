// A lock between processes (and threads) that is a file while it is held.
#pragma once

#include <chrono>
#include <filesystem>

namespace cleave {

class FileLock {
 public:
  /// Waits at most `timeout`. Where no lock can be had (a read-only or full directory, a file
  /// system without locks, a stuck holder), the object holds nothing and the caller goes on
  /// without.
  FileLock(std::filesystem::path path, std::chrono::milliseconds timeout);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return descriptor_ >= 0; }

 private:
  enum class Attempt { acquired, busy, impossible };
  Attempt try_acquire();

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace cleave
