// The parts of a tile that slices of K divide among themselves when they finish it together: blocks of accumulators, or
// groups of blocks where columns share a scale of D.
#pragma once

#include "cleave/config/output.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue/store_direct.h"
#include "cleave/epilogue/store_quantized.h"

namespace cleave {

/// A block is a part; the up projection's blocks go with those of the gate.
template <GemmConfig C>
struct TileParts {
  static constexpr uint32_t kBlocks = 1;  // of a part
  static constexpr uint32_t kOfRow = gated(C) ? Fragment<C>::kUpBlocks : Fragment<C>::kColBlocks;
  static constexpr uint32_t kCount = Fragment<C>::kBlocks / Fragment<C>::kColBlocks * kOfRow;
  CLEAVE_HD static constexpr uint32_t first_block(uint32_t part) {
    return gated(C) ? part / kOfRow * Fragment<C>::kColBlocks + part % kOfRow : part;
  }
};
template <GemmConfig C>
  requires(C.epilogue.has_scale_out)
struct TileParts<C> : ScaleGroups<C> {};

/// Stores a part to D.
template <GemmConfig C, class Broadcast>
class PartStore {
 public:
  CLEAVE_DEVICE PartStore(const GemmParams& p, EpilogueOp<C, Broadcast>& op, uint32_t part)
      : p_(p), op_(op), part_(part) {}

  template <class Inputs>
  CLEAVE_DEVICE void add(uint32_t, const Sum<C>* sums, const Sum<C>* up_sums, const Inputs& inputs) {
    store_block_direct<C>(p_, op_, TileParts<C>::first_block(part_), sums, up_sums, inputs);
  }
  CLEAVE_DEVICE void finish() const {}

 private:
  const GemmParams& p_;
  EpilogueOp<C, Broadcast>& op_;
  uint32_t part_;
};
template <GemmConfig C, class Broadcast>
  requires(C.epilogue.has_scale_out)
class PartStore<C, Broadcast> : public GroupStore<C, Broadcast> {
 public:
  using GroupStore<C, Broadcast>::GroupStore;
};

}  // namespace cleave
