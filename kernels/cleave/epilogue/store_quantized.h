// 8-bit D with scales that are found: of every 128 columns of a row the largest magnitude becomes the largest of D's
// type. A quad of lanes has such a row in its accumulators (fragment.h) if the tile's columns are whole groups of 128:
// it looks through them once for the scale, by shuffles, and then converts them. If they are 64, the quad in the same
// place of the cluster's other CTA has the rest, and the two tell each other what theirs reach (paired_reach.h). The
// quad's pieces are turned so that each lane stores 16 bytes.
#pragma once

#include "cleave/config/output.h"
#include "cleave/config/threads.h"
#include "cleave/core/max_over_lanes.h"
#include "cleave/core/quantizer.h"
#include "cleave/epilogue/epilogue_op.h"
#include "cleave/epilogue/paired_reach.h"

namespace cleave {

/// The groups of 128 columns that a thread has a share of. A group is two rows, as a block is.
template <GemmConfig C>
struct ScaleGroups {
  static constexpr uint32_t kBlocks = blocks_finished_together(C);  // of a group
  static constexpr uint32_t kColumns = scale_columns(C);
  static constexpr uint32_t kOfRow = output_columns(C) / kColumns;
  static constexpr uint32_t kCount = Fragment<C>::kBlocks / Fragment<C>::kColBlocks * kOfRow;
  static_assert(kOfRow * kColumns == output_columns(C) && Fragment<C>::kCols == C.tile.n,
                "a group, or half of one, is one quad's");
  static_assert(!pairs_scales(C) || (kColumns * 2 == kScaleBlock && C.cluster.multicast_n == 2),
                "the other half is the neighbour's");
  static_assert(C.epilogue.order == Order::row && !scatters(C) && C.schedule.grouping != Grouping::n);

  CLEAVE_HD static constexpr uint32_t first_block(uint32_t group) {
    return group / kOfRow * Fragment<C>::kColBlocks + group % kOfRow * kBlocks;
  }
};

/// Lane i of a quad gets word i of its lanes, in their order.
CLEAVE_DEVICE void turn_quad(uint32_t (&words)[4]) {
  CLEAVE_UNROLL
  for (uint32_t distance = 1; distance < 4; distance *= 2) {
    const bool upper = (threadIdx.x & distance) != 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      uint32_t &low = words[i], &high = words[i + distance];
      const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
      low = upper ? other : low;
      high = upper ? high : other;
    }
  }
}

/// 16 neighbours in a row of D, as far as they lie in it.
template <GemmConfig C>
CLEAVE_DEVICE void store_bytes(const GemmParams& p, const Tile<C>& tile, uint32_t row, uint32_t col,
                               const uint32_t (&words)[4]) {
  const uint32_t end = tile.n_end(p.size);
  if (row >= tile.m_end(p.size) || col >= end) return;
  uint8_t* const at =
      static_cast<uint8_t*>(p.epilogue.d) + tile.batch * p.epilogue.d_batch_stride + row * p.epilogue.d_stride + col;
  if (col + 16 <= end && (reinterpret_cast<uint64_t>(at) & 15) == 0) {
    *reinterpret_cast<uint4*>(at) = make_uint4(words[0], words[1], words[2], words[3]);
    return;
  }
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < 16; ++i)
    if (col + i < end) at[i] = uint8_t(words[i / 4] >> i % 4 * 8);
}

/// One of the two rows of a group.
template <GemmConfig C>
CLEAVE_DEVICE void store_row(const GemmParams& p, const Tile<C>& tile, uint32_t row, uint32_t col0,
                             const Quantizer& quantizer, const float (&values)[ScaleGroups<C>::kBlocks][4],
                             uint32_t half) {
  const uint32_t lane = threadIdx.x % 4;
  const bool begins = !pairs_scales(C) || col0 % kScaleBlock == 0;
  if (lane == 0 && begins && row < tile.m_end(p.size) && col0 < tile.n_end(p.size)) {
    p.epilogue.scale_out[scale_out_offset(p.epilogue, row, col0 / kScaleBlock, tile.batch)] = quantizer.scale;
  }
  constexpr uint32_t kAtOnce = 8;  // blocks: 64 columns, 16 for each lane
  CLEAVE_UNROLL
  for (uint32_t first = 0; first < ScaleGroups<C>::kBlocks; first += kAtOnce) {
    uint32_t words[4];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const float* const pair = values[first + i] + half * 2;
      const uint32_t bits =
          pack_bytes(C.epilogue.d, quantized(quantizer, true, pair[0]), quantized(quantizer, true, pair[1]));
      words[i / 2] = i % 2 == 0 ? bits : words[i / 2] | bits << 16;
    }
    turn_quad(words);
    const uint32_t blocks[4] = {__byte_perm(words[0], words[1], 0x5410), __byte_perm(words[2], words[3], 0x5410),
                                __byte_perm(words[0], words[1], 0x7632), __byte_perm(words[2], words[3], 0x7632)};
    store_bytes<C>(p, tile, row, col0 + first * 8 + lane * 16, blocks);
  }
}

/// A group on its way to D.
template <GemmConfig C, class Broadcast>
class GroupStore {
  using Groups = ScaleGroups<C>;

 public:
  CLEAVE_DEVICE GroupStore(const GemmParams& p, EpilogueOp<C, Broadcast>& op, uint32_t group)
      : p_(p), op_(op), group_(group), end_(op.tile().n_end(p.size)) {}

  /// The sums of its block `b`; `up_sums`: those of the up projection, where `sums` are the gate's.
  template <class Inputs>
  CLEAVE_DEVICE void add(uint32_t b, const Sum<C>* sums, const Sum<C>* up_sums, const Inputs& inputs) {
    const uint32_t block = Groups::first_block(group_) + b;
    op_(block, sums, up_sums, inputs, values_[b]);
  }

  /// Once all blocks are there, by whole warps: what the values of its two rows reach.
  CLEAVE_DEVICE void find_reach(Reach (&reach)[2]) const {
    const Tile<C>& tile = op_.tile();
    if (tile.n0 + (group_ % Groups::kOfRow + 1) * Groups::kColumns <= end_) {
      find_reach(reach, [](uint32_t, uint32_t) { return true; });
    } else {
      find_reach(reach,
                 [&](uint32_t b, uint32_t i) { return tile.col(Groups::first_block(group_) + b) + i % 2 < end_; });
    }
    CLEAVE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) reach[half].above = max_over_lanes<4>(reach[half].above);
  }

  /// And then.
  CLEAVE_DEVICE void store(const Reach (&reach)[2]) const {
    const Tile<C>& tile = op_.tile();
    const uint32_t row = tile.row(Groups::first_block(group_));
    CLEAVE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const Quantizer quantizer = quantizer_for(C.epilogue.d, true, C.epilogue.ue8m0, reach[half]);
      store_row<C>(p_, tile, row + half * 8, tile.n0 + group_ % Groups::kOfRow * Groups::kColumns, quantizer, values_,
                   half);
    }
  }

  /// Both, of a group that is one CTA's.
  CLEAVE_DEVICE void finish() const {
    static_assert(!pairs_scales(C));
    Reach reach[2];
    find_reach(reach);
    store(reach);
  }

 private:
  /// The reach of all values that exist: where a group is whole, none is asked.
  template <class Exists>
  CLEAVE_DEVICE void find_reach(Reach (&reach)[2], const Exists& exists) const {
    CLEAVE_UNROLL
    for (uint32_t b = 0; b < Groups::kBlocks; ++b) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i)
        if (exists(b, i)) reach[i / 2].add(true, values_[b][i]);
    }
  }

  const GemmParams& p_;
  EpilogueOp<C, Broadcast>& op_;
  uint32_t group_, end_;
  float values_[Groups::kBlocks][4];
};

/// A group of a thread's accumulators, ready to be stored.
template <GemmConfig C, class Broadcast>
CLEAVE_DEVICE GroupStore<C, Broadcast> finish_group(const GemmParams& p, EpilogueOp<C, Broadcast>& op,
                                                    const Sums<C>& sums, uint32_t group) {
  GroupStore<C, Broadcast> store(p, op, group);
  CLEAVE_UNROLL
  for (uint32_t b = 0; b < ScaleGroups<C>::kBlocks; ++b) {
    const uint32_t block = ScaleGroups<C>::first_block(group) + b;
    const Sum<C>* const own = sums + block * 4;
    store.add(b, own, own + Fragment<C>::kUpBlocks * 4, op.fetch(block));
  }
  return store;
}

/// All of a thread's accumulators.
template <GemmConfig C, class Broadcast>
CLEAVE_DEVICE void store_quantized(const GemmParams& p, const Tile<C>& tile, Broadcast& broadcast,
                                   const Sums<C>& sums) {
  EpilogueOp<C, Broadcast> op(p, tile, broadcast);
  CLEAVE_UNROLL
  for (uint32_t group = 0; group < ScaleGroups<C>::kCount; ++group) finish_group<C>(p, op, sums, group).finish();
  op.done();
}

/// The same of halves of groups.
template <GemmConfig C, class Broadcast>
CLEAVE_DEVICE void store_quantized(const GemmParams& p, const Tile<C>& tile, Broadcast& broadcast, const Sums<C>& sums,
                                   PairedReach<C>& paired) {
  constexpr uint32_t kCount = ScaleGroups<C>::kCount;
  static_assert(kCount <= 2, "more reaches than a quad sends at once");
  EpilogueOp<C, Broadcast> op(p, tile, broadcast);
  GroupStore<C, Broadcast> first = finish_group<C>(p, op, sums, 0);
  Reach reaches[kCount][2];
  first.find_reach(reaches[0]);
  if constexpr (kCount == 1) {
    paired.exchange(reaches);
    first.store(reaches[0]);
  } else {
    GroupStore<C, Broadcast> second = finish_group<C>(p, op, sums, 1);
    second.find_reach(reaches[1]);
    paired.exchange(reaches);
    first.store(reaches[0]);
    second.store(reaches[1]);
  }
  op.done();
}

}  // namespace cleave
