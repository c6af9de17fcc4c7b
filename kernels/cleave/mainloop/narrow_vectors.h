// Which vectors of a k block each thread copies, where a k has any number of them.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// The vectors of a k block, one k after the other, dealt to `Threads` threads in turns.
template <uint32_t Threads>
class NarrowVectors {
 public:
  /// Calls `copy(k, vector)` for each of a thread's in a block of `tile_k`, with the vector's number among its k's.
  template <class Copy>
  CLEAVE_HD void for_each(uint32_t tile_k, const Copy& copy) const {
    uint32_t k = k_, vector = vector_;
    while (k < tile_k) {
      copy(k, vector);
      k += k_step_;
      vector += vector_step_;
      if (vector >= per_k_) {
        vector -= per_k_;
        ++k;
      }
    }
  }

  /// `per_k`: vectors of one k, at least one.
  CLEAVE_HD void start(uint32_t per_k, uint32_t thread) {
    per_k_ = per_k;
    k_ = thread / per_k;
    vector_ = thread - k_ * per_k;
    k_step_ = Threads / per_k;
    vector_step_ = Threads - k_step_ * per_k;
  }

 private:
  uint32_t per_k_ = 1;
  uint32_t k_ = 0, vector_ = 0;            // the thread's first
  uint32_t k_step_ = 0, vector_step_ = 0;  // to its next
};

}  // namespace cleave
