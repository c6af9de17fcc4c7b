// D straight from registers to global memory: any strides, any alignment. The path of most float32
// outputs (whose 8-byte pairs fill whole 32-byte sectors), of reductions, and of rows that TMA
// cannot address.
#pragma once

#include "cleave/config/reads_ahead.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue/epilogue_op.h"

namespace cleave {

/// `inputs`: what `fetch` or `fetch_all` brought.
template <GemmConfig C, class Broadcast, class Inputs>
CLEAVE_DEVICE void store_block_direct(const GemmParams& p, EpilogueOp<C, Broadcast>& op, uint32_t block,
                                      const Sum<C>* sums, const Sum<C>* up_sums, const Inputs& inputs) {
  Value<C> v[4];
  op(block, sums, up_sums, inputs, v);
  const Tile<C>& tile = op.tile();
  char* const d =
      static_cast<char*>(p.epilogue.d) + int64_t(tile.batch) * p.epilogue.d_batch_stride * size_of(C.epilogue.d);
  if constexpr (C.conv.fuses_classes) {  // neighbours may belong to other pixels, or to none
    const auto address = [&](const OutputCoord& at) {
      return d + epilogue_offset(C.epilogue.order, p.epilogue.d_stride, at.row, at.col) * size_of(C.epilogue.d);
    };
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; i += 2) {
      const OutputCoord first = op.place(block, i), second = op.place(block, i + 1);
      if (first.exists && second.exists && second.col == first.col + 1 &&
          (reinterpret_cast<uint64_t>(address(first)) & (2 * size_of(C.epilogue.d) - 1)) == 0) {
        store_pair(C.epilogue.d, address(first), v[i], v[i + 1]);
        continue;
      }
      if (first.exists) store_element(C.epilogue.d, address(first), 0, v[i]);
      if (second.exists) store_element(C.epilogue.d, address(second), 0, v[i + 1]);
    }
    return;
  }
  constexpr bool kByRow = C.epilogue.order == Order::row;
  const uint32_t col = tile.col(block);
  const auto address = [&](uint32_t row) {
    return d + epilogue_offset(C.epilogue.order, p.epilogue.d_stride, row, col) * size_of(C.epilogue.d);
  };
  CLEAVE_UNROLL
  for (uint32_t half = 0; half < Fragment<C>::kLines; ++half) {
    if (tile.row(block) + half * 8 >= tile.m_end(p.size) || col >= tile.n_end(p.size)) continue;
    store_two<kByRow>(C.epilogue.d, address(op.place(block, half * 2).row), p.epilogue.d_stride, v[half * 2],
                      v[half * 2 + 1], col + 1 < tile.n_end(p.size));
  }
}

/// All of a thread's accumulators. What is read for each element comes from `fetch(op, block)`; `fetched()` is called
/// once all of it is in registers.
template <GemmConfig C, class Broadcast, class Fetch, class Fetched>
CLEAVE_DEVICE void store_direct(const GemmParams& p, const Tile<C>& tile, Broadcast& broadcast, const Sums<C>& sums,
                                const Fetch& fetch, const Fetched& fetched) {
  EpilogueOp<C, Broadcast> op(p, tile, broadcast);
  constexpr uint32_t kAhead = blocks_ahead(C);
  ElementInputs<C> elements[kAhead];
  CLEAVE_UNROLL
  for (uint32_t block = 0; block < Fragment<C>::kBlocks; ++block) {
    if (!Fragment<C>::stored(block)) continue;
    if (block % kAhead == 0) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i)
        if (block + i < Fragment<C>::kBlocks) elements[i] = fetch(op, block + i);
      if (block + kAhead >= Fragment<C>::kBlocks) fetched();
    }
    const Sum<C>* const own = sums + block * 4;
    store_block_direct<C>(p, op, block, own, own + Fragment<C>::kUpBlocks * 4, elements[block % kAhead]);
  }
  op.done();
}

/// The same, where it is read from global memory.
template <GemmConfig C, class Broadcast>
CLEAVE_DEVICE void store_direct(const GemmParams& p, const Tile<C>& tile, Broadcast& broadcast, const Sums<C>& sums) {
  store_direct<C>(
      p, tile, broadcast, sums, [](EpilogueOp<C, Broadcast>& op, uint32_t block) { return op.fetch(block); }, [] {});
}

}  // namespace cleave
