// An open file, socket or piece of memory of the system's.
#pragma once

#include <unistd.h>

#include <utility>

namespace cleave {

/// Closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  explicit operator bool() const { return number_ >= 0; }
  int get() const { return number_; }

  /// False if the file was open and the system could not keep what had been written.
  bool close() { return number_ < 0 || ::close(release()) == 0; }

 private:
  int release() { return std::exchange(number_, -1); }

  int number_;
};

}  // namespace cleave
