// The plans of a process, by problem.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace cleave {

/// Thread-safe.
template <class Problem, class Plan, class Hash>
class PlanMap {
 public:
  using Value = std::shared_ptr<const Plan>;

  /// nullptr if there is none.
  Value find(const Problem& problem) const {
    const std::shared_lock lock(mutex_);
    const auto it = plans_.find(problem);
    return it == plans_.end() ? nullptr : it->second;
  }

  /// `plan`, or the one that another thread was faster to make.
  Value insert(const Problem& problem, Value plan) {
    const std::unique_lock lock(mutex_);
    return plans_.try_emplace(problem, std::move(plan)).first->second;
  }

  void clear() {
    const std::unique_lock lock(mutex_);
    plans_.clear();
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<Problem, Value, Hash> plans_;
};

}  // namespace cleave
