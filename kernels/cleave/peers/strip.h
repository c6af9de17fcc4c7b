// A small sum over ranks in strips: 64 columns of D and all of its rows, of which a warpgroup's threads have what WGMMA
// gives them of the transposed product. So a product can send its sums as soon as it has them, from its registers, and
// its epilogue is that of the whole sum: no memory between, no launch, and one trip between GPUs.
//
// What is sent lies in this order whether a product sends it or a fold does (fold.h), so that each rank may choose: a
// rank whose operands suit no such product need not tell the others.
#pragma once

#include "cleave/peers/pushed.h"
#include "cleave/peers/strip_sizes.h"

namespace cleave {

/// As one of a strip's threads sees it, behind grid_dependency_wait. `Vectors`: strip_vectors.
template <uint32_t Ranks, DType Partial, uint32_t Vectors>
class Strip {
 public:
  static constexpr uint32_t kOfPlace = vectors_of_place(Ranks), kMeetings = strip_places(Vectors, Ranks);
  static constexpr uint32_t kBlocks = Vectors * blocks_of_vector(size_of(Partial));  // of 8 rows
  static constexpr uint32_t kSums = 4 * kBlocks;                                     // of a thread

  /// The strip's number, and the thread's among its 128.
  CLEAVE_DEVICE Strip(const MeetingParams& p, uint32_t number, uint32_t thread)
      : p_(p), first_(number * kMeetings), thread_(thread) {
    CLEAVE_UNROLL
    for (uint32_t m = 0; m < kMeetings; ++m) epochs_[m] = Meeting::next(p, first_ + m);
    was_broken_ = meeting(0).is_broken();
  }

  /// The row of sum `i`, and its column in the strip.
  CLEAVE_DEVICE uint32_t row(uint32_t i) const { return i / 4 * 8 + thread_ % 4 * 2 + i % 2; }
  CLEAVE_DEVICE uint32_t column(uint32_t i) const { return thread_ / 32 * 16 + thread_ % 32 / 4 + i % 4 / 2 * 8; }

  /// What this rank has becomes the sum of all ranks', in their order, each rounded to Partial; sums[i] is of (row(i),
  /// column(i)). `rows`: of D. Useless where the group is broken.
  CLEAVE_DEVICE void add_up(uint32_t rows, float* sums) const {
    PushedVector own[Vectors], all[Vectors][Ranks];
    bool exists[Vectors];
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < Vectors; ++v) {
      exists[v] = row(v * kOfVector) < rows;
      CLEAVE_UNROLL
      for (uint32_t w = 0; w < 4; ++w) own[v].words[w] = word(sums + v * kOfVector, w);
      CLEAVE_UNROLL
      for (uint32_t r = 0; r < Ranks; ++r) all[v][r] = own[v];
    }
    exchange(*this, own, exists, all);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kSums; ++i) {
      float sum = element_of<Partial>(all[i / kOfVector][0], i % kOfVector);
      CLEAVE_UNROLL
      for (uint32_t r = 1; r < Ranks; ++r) sum += element_of<Partial>(all[i / kOfVector][r], i % kOfVector);
      sums[i] = sum;
    }
  }

  /// By one thread of the strip, once all have been made: the next ones may begin.
  CLEAVE_DEVICE void count() const {
    CLEAVE_UNROLL
    for (uint32_t m = 0; m < kMeetings; ++m) meeting(m).count();
  }

  // What exchange asks for.
  CLEAVE_DEVICE bool was_broken() const { return was_broken_; }
  CLEAVE_DEVICE Meeting meeting(uint32_t m) const { return {p_, first_ + m, thread_, epochs_[m]}; }
  CLEAVE_DEVICE uint4* piece(uint32_t receiver, uint32_t sender, uint32_t v) const {
    const uint32_t m = v / kOfPlace;
    char* const block = reinterpret_cast<char*>(p_.headers[receiver]);
    const uint64_t place = pushed_offset(p_.size, epochs_[m], sender, first_ + m);
    return reinterpret_cast<uint4*>(block + place) + v % kOfPlace * kStripThreads + thread_;
  }

 private:
  static constexpr uint32_t kOfVector = 16 / size_of(Partial);  // sums

  static CLEAVE_DEVICE uint32_t word(const float* sums, uint32_t w) {
    if constexpr (size_of(Partial) == 4) {
      uint32_t own;
      asm volatile("mov.b32 %0, %1;" : "=r"(own) : "f"(sums[w]));
      return own;
    }
    return pack_pair(Partial, sums[2 * w], sums[2 * w + 1]);
  }

  const MeetingParams& p_;
  uint32_t first_, thread_;
  uint32_t epochs_[kMeetings];  // of these meetings
  bool was_broken_;             // before there was anything to send
};

}  // namespace cleave
