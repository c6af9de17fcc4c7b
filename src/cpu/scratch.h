// Where threads of the CPU backend put what they compute with.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "cpu/parts.h"
#include "cpu/tiling.h"

namespace cleave::cpu {

/// What one thread works in.
template <class Sum>
struct alignas(64) Scratch {
  static_assert(sizeof(Sum) == kSumSize);
  Panels<kMaxTileM * kMaxTileK> a;
  Panels<kWidestTileN * kMaxTileK> b;
  Sum sums[kMaxTileM * kWidestTileN];
  Sum share[kMaxTileM * kWidestTileN];  // cluster: one slice of the sums
};

/// Goes from product to product. If it were freed, what comes to stay before the next product, such as plans, would
/// come to lie there, and the heap would grow by another 1.4 MB, time and again.
template <class Sum>
class BorrowedScratch {
 public:
  static constexpr size_t kMostKept = 8;  ///< by the process, beside those in use

  BorrowedScratch() {
    for (std::atomic<Scratch<Sum>*>& place : kept_) {
      if (place.load(std::memory_order_relaxed) == nullptr) continue;
      scratch_.reset(place.exchange(nullptr, std::memory_order_acquire));
      if (scratch_) return;
    }
    scratch_ = std::make_unique_for_overwrite<Scratch<Sum>>();
  }

  ~BorrowedScratch() {
    for (std::atomic<Scratch<Sum>*>& place : kept_) {
      Scratch<Sum>* empty = nullptr;
      if (!place.compare_exchange_strong(empty, scratch_.get(), std::memory_order_release)) continue;
      scratch_.release();
      return;
    }
  }

  BorrowedScratch(const BorrowedScratch&) = delete;
  BorrowedScratch& operator=(const BorrowedScratch&) = delete;

  Scratch<Sum>& operator*() const { return *scratch_; }
  Scratch<Sum>* operator->() const { return scratch_.get(); }

 private:
  inline static constinit std::array<std::atomic<Scratch<Sum>*>, kMostKept> kept_ = {};
  std::unique_ptr<Scratch<Sum>> scratch_;
};

}  // namespace cleave::cpu
