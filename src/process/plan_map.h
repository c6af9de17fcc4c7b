// The plans of a process, by problem: those used last.
//
// A captured graph loses nothing when a plan goes: what its nodes refer to are a loaded kernel and
// a workspace, and both stay (kernel_cache.h, workspace_pool.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "process/fork.h"

namespace cleave {

// Host memory of the plans that a process keeps: 32 MiB of all kinds together.
inline constexpr size_t kMostGemmPlanBytes = 23 << 20;
inline constexpr size_t kMostAcrossPlanBytes = 1 << 20;  // of products that are summed over ranks themselves
inline constexpr size_t kMostQuantizePlanBytes = 4 << 20;
inline constexpr size_t kMostMoePlanBytes = 2 << 20;
inline constexpr size_t kMostLoraPlanBytes = 512 << 10;
inline constexpr size_t kMostFoldPlanBytes = 512 << 10;
inline constexpr size_t kMostRoutePlanBytes = 512 << 10;  // and as many of its logits

/// Thread-safe. Beyond `most_bytes` the plans that were not used for longest go, an eighth of the
/// bytes at once; who has one of them keeps it. The order of use is known to the precision of
/// insertions, so that a hit writes nothing that other threads' hits would wait for.
template <class Problem, class Plan, class Hash>
class PlanMap {
 public:
  using Value = std::shared_ptr<const Plan>;

  explicit PlanMap(size_t most_bytes) : most_bytes_(most_bytes) {}

  /// nullptr if there is none.
  Value find(const Problem& problem) const {
    const std::shared_lock lock(mutex_);
    const auto it = plans_.find(problem);
    if (it == plans_.end()) return nullptr;
    it->second.use(insertions_);
    return it->second.plan;
  }

  /// `plan`, or the one that another thread was faster to make.
  Value insert(const Problem& problem, Value plan) {
    std::vector<Value> evicted;  // destroyed without the lock
    const std::unique_lock lock(mutex_);
    const auto [it, is_new] = plans_.try_emplace(problem, plan, ++insertions_);
    if (!is_new) return it->second.plan;
    bytes_ += bytes_of(*plan);
    if (bytes_ > most_bytes_) evicted = evict();
    return plan;
  }

  void clear() {
    Plans cleared;
    const std::unique_lock lock(mutex_);
    std::swap(plans_, cleared);
    bytes_ = 0;
  }

  /// Host memory of the plans, with what the map itself takes for them.
  size_t bytes() const {
    const std::shared_lock lock(mutex_);
    return bytes_;
  }

 private:
  struct Entry {
    Entry(Value plan, uint64_t now) : plan(std::move(plan)), used(now) {}

    void use(uint64_t now) const {
      if (used.load(std::memory_order_relaxed) != now) used.store(now, std::memory_order_relaxed);
    }

    Value plan;
    mutable std::atomic<uint64_t> used;  // at which insertion
  };
  using Plans = std::unordered_map<Problem, Entry, Hash>;

  static size_t bytes_of(const Plan& plan) {
    constexpr size_t kLinks = 6 * sizeof(void*);  // of the node, of its bucket, of the allocator
    return plan.host_bytes() + sizeof(typename Plans::value_type) + kLinks;
  }

  std::vector<Value> evict() {
    std::vector<std::pair<uint64_t, typename Plans::iterator>> by_age;
    by_age.reserve(plans_.size());
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      const uint64_t used = it->second.used.load(std::memory_order_relaxed);
      if (used != insertions_) by_age.emplace_back(used, it);  // the newest stays, however large
    }
    std::ranges::sort(by_age, {}, [](const auto& each) { return each.first; });
    std::vector<Value> evicted;
    for (const auto& [used, it] : by_age) {
      if (bytes_ <= most_bytes_ / 8 * 7) break;
      bytes_ -= bytes_of(*it->second.plan);
      evicted.push_back(std::move(it->second.plan));
      plans_.erase(it);
    }
    return evicted;
  }

  const size_t most_bytes_;
  mutable ForkSharedMutex mutex_;
  Plans plans_;
  size_t bytes_ = 0;
  uint64_t insertions_ = 0;
};

}  // namespace cleave
