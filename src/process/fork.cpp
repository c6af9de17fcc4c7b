#include "process/fork.h"

#include <pthread.h>

#include <new>

namespace cleave {
namespace {

constinit std::atomic<uint32_t> forks = 0;

}  // namespace

uint32_t fork_count() noexcept {
  return forks.load(std::memory_order_relaxed);
}

/// All that there are. Each is taken in turn before a fork: none is held while another is wanted.
struct ForkSharedMutexes {
  static constinit std::mutex mutex;
  static constinit ForkSharedMutex* first;

  static void take_all() {
    mutex.lock();
    for (ForkSharedMutex* each = first; each != nullptr; each = each->next_) each->lock();
  }

  static void release_all() {
    for (ForkSharedMutex* each = first; each != nullptr; each = each->next_) each->unlock();
    mutex.unlock();
  }

  /// Made anew: who waited for one here does not exist in the child, and it would be given to them.
  static void renew_all() {
    forks.fetch_add(1, std::memory_order_relaxed);
    for (ForkSharedMutex* each = first; each != nullptr; each = each->next_)
      new (static_cast<std::shared_mutex*>(each)) std::shared_mutex;
    new (&mutex) std::mutex;
  }
};

constinit std::mutex ForkSharedMutexes::mutex;
constinit ForkSharedMutex* ForkSharedMutexes::first = nullptr;

namespace {

[[maybe_unused]] const int registered =
    pthread_atfork(&ForkSharedMutexes::take_all, &ForkSharedMutexes::release_all, &ForkSharedMutexes::renew_all);

}  // namespace

ForkSharedMutex::ForkSharedMutex() {
  const std::lock_guard lock(ForkSharedMutexes::mutex);
  next_ = ForkSharedMutexes::first;
  ForkSharedMutexes::first = this;
}

ForkSharedMutex::~ForkSharedMutex() {
  const std::lock_guard lock(ForkSharedMutexes::mutex);
  ForkSharedMutex** link = &ForkSharedMutexes::first;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
}

}  // namespace cleave
