#include "cpu/thread_team.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "base/refuse.h"
#include "cpu/processors.h"
#include "process/fork.h"

namespace cleave::cpu {
namespace {

constexpr uint32_t kMaxThreads = 1024;

uint32_t read_thread_count() {
  const char* text = std::getenv("CLEAVE_CPU_THREADS");
  if (text == nullptr || *text == '\0') {
    return std::min(usable_processors(), kMaxThreads);
  }
  uint32_t threads = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, threads);
  if (error != std::errc() || stop != end || threads < 1 || threads > kMaxThreads) {
    refuse_value("CLEAVE_CPU_THREADS is \"{}\"; set a number from 1 to {}, or unset it", text, kMaxThreads);
  }
  return threads;
}

}  // namespace

uint32_t available_threads() {
  static constinit Lazy<const uint32_t> threads;
  return threads.get(read_thread_count);
}

void run_in_order(uint32_t threads, uint32_t count, const std::function<void(uint32_t thread, uint32_t index)>& body) {
  std::atomic<uint32_t> next{0};
  const auto work = [&](uint32_t thread) noexcept {
    // Fewer than 2^31 indices, so the overshoot of the last claims cannot wrap.
    for (uint32_t index = next++; index < count; index = next++) body(thread, index);
  };

  std::vector<std::jthread> helpers;
  const uint32_t wanted = std::min(threads, count);
  if (wanted > 1) helpers.reserve(wanted - 1);
  try {
    for (uint32_t thread = 1; thread < wanted; ++thread) helpers.emplace_back(work, thread);
  } catch (const std::system_error&) {
    // The system has no thread left to give: those that started, and the caller, do it all.
  }
  work(0);
}

}  // namespace cleave::cpu
