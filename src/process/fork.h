// Locks, and values made at first use, that are sound in the child of a fork().
//
// fork() copies one thread. What the others held at that moment, nobody releases in the child: its
// first use of a std::mutex, or of a function's static variable that another thread was making,
// would wait for ever. So the library has neither, but these three.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

namespace cleave {

/// Forks between the process that loaded the library and this one.
uint32_t fork_count() noexcept;

/// A mutex that is free in the child, whoever held it. For what may be held long: fork() does not
/// wait for it. The child may find what it guards half done, so that has to be published by one
/// store at the end, or to be of no use in a child (CUDA's).
class ForkMutex {
 public:
  constexpr ForkMutex() = default;
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() noexcept {
    const uint32_t locked = 4 * fork_count() + 1;  // differs from what a parent's threads left
    const uint32_t waited_for = locked + kWaitedFor;
    uint32_t own = locked;
    for (uint32_t seen = state_.load(std::memory_order_relaxed);;) {
      if (seen != locked && seen != waited_for) {
        if (state_.compare_exchange_weak(seen, own, std::memory_order_acquire)) return;
      } else if (seen == waited_for || state_.compare_exchange_weak(seen, waited_for, std::memory_order_relaxed)) {
        state_.wait(waited_for, std::memory_order_relaxed);
        own = waited_for;  // others may still wait
        seen = state_.load(std::memory_order_relaxed);
      }
    }
  }

  /// Calls the system only where somebody waits.
  void unlock() noexcept {
    if (state_.exchange(kFree, std::memory_order_release) & kWaitedFor) state_.notify_one();
  }

 private:
  static constexpr uint32_t kFree = 0, kWaitedFor = 2;
  std::atomic<uint32_t> state_ = kFree;
};

/// A mutex whose data are whole in the child: fork() waits for it. For short uses, in which no
/// other lock is taken.
class ForkSharedMutex : public std::shared_mutex {
 public:
  ForkSharedMutex();
  ~ForkSharedMutex();

 private:
  friend struct ForkSharedMutexes;
  ForkSharedMutex* next_ = nullptr;
};

/// A value that is made at its first use, and kept until the process ends. Constant-initialised:
/// declare it `static constinit`.
template <class T>
class Lazy {
 public:
  constexpr Lazy() = default;

  /// The value, or else what `make` returns, or throws. A child makes it anew if a thread of its
  /// parent was at it.
  template <class Make>
  T& get(const Make& make) {
    if (T* made = made_.load(std::memory_order_acquire)) return *made;
    const std::lock_guard lock(mutex_);
    if (T* made = made_.load(std::memory_order_acquire)) return *made;
    T* made = new T(make());  // leaked: threads may still use it while the process exits
    made_.store(made, std::memory_order_release);
    return *made;
  }

  T& get() {
    return get([] { return T(); });
  }

 private:
  ForkMutex mutex_;
  std::atomic<T*> made_ = nullptr;
};

}  // namespace cleave
