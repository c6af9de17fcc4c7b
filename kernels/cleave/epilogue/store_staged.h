// 16-bit D through shared memory, in chunks of 64 rows of up to 128 bytes, which leave by TMA.
//
// A warpgroup has at least two chunks: while one drains to global memory the other is filled, and
// the last ones drain under the next tile's mainloop. stmatrix writes them in the 128-byte swizzle,
// so neither side has bank conflicts; for a column-major D its transposing form turns the fragment
// on the way. Rows that are a class of pixels leave as such: TMA finds each its place. Columns of fused
// classes lie in more places than a tensor map has: threads store them, run by run.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/output.h"
#include "cleave/config/reads_ahead.h"
#include "cleave/config/store_chunk.h"
#include "cleave/config/threads.h"
#include "cleave/config/tma_box.h"
#include "cleave/epilogue/epilogue_op.h"
#include "cleave/memory/swizzle.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/stmatrix.h"
#include "cleave/ptx/tma.h"
#include "cleave/ptx/tma_im2col.h"

namespace cleave {

template <GemmConfig C>
class StagedStore {
 public:
  CLEAVE_DEVICE StagedStore(uint32_t staging, uint32_t warpgroup)
      : staging_(staging + warpgroup * C.store.chunks * store_chunk_bytes(C)), barrier_(warpgroup_barrier(warpgroup)) {}

  template <class Broadcast>
  CLEAVE_DEVICE void store(const Params<C>& p, const Tile<C>& tile, Broadcast& broadcast, const Sums<C>& sums) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const bool issuer = threadIdx.x % 128 == 0;
    const uint32_t group_row = tile.m0 + (tile.fragment.row0 / Fragment<C>::kRows) * Fragment<C>::kRows;
    EpilogueOp<C, Broadcast> op(p, tile, broadcast);
    constexpr uint32_t kAhead = blocks_ahead(C);
    ElementInputs<C> elements[kAhead];
    if constexpr (kAtOnce) {
      if (issuer) ptx::tma_store_wait_read<0>();
      ptx::named_barrier_sync(barrier_, 128);
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kChunks; ++i) {
      const uint32_t wave = i / kChunksPerRow, col = i % kChunksPerRow * kChunk;
      const uint32_t columns = min_of(kChunk, output_columns(C) - col);
      const uint32_t chunk = staging_ + (kAtOnce ? i : next_) * store_chunk_bytes(C);
      if constexpr (!kAtOnce) {
        if (C.store.by_tma && issuer) ptx::tma_store_wait_read<C.store.chunks - 1>();
        ptx::named_barrier_sync(barrier_, 128);
      }
      CLEAVE_UNROLL
      for (uint32_t x = 0; x < columns; x += 16) {
        uint32_t packed[4];
        CLEAVE_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t block = wave * Fragment<C>::kColBlocks + (col + x) / 8 + half;
          float values[4];
          const Sum<C>* const own = sums + block * 4;
          const uint32_t ahead = (x / 8 + half) % kAhead;
          if (ahead == 0) {
            CLEAVE_UNROLL
            for (uint32_t i = 0; i < kAhead; ++i)
              if (x + (half + i) * 8 < columns) elements[i] = op.fetch(block + i);
          }
          op(block, own, own + Fragment<C>::kUpBlocks * 4, elements[ahead], values);
          packed[2 * half] = pack_pair(C.epilogue.d, values[0], values[1]);
          packed[2 * half + 1] = pack_pair(C.epilogue.d, values[2], values[3]);
        }
        // Lane l addresses row l % 8 of the 8 x 8 matrix l / 8: matrices 0 and 1 are the upper and
        // lower half of the first block, 2 and 3 of the second.
        const uint32_t tile_row = warp * 16 + lane / 8 % 2 * 8, tile_col = x + lane / 16 * 8;
        if constexpr (kRowMajor) {
          ptx::stmatrix<false>(
              chunk + x / kBox * kBoxBytes + swizzle<kBox * 2>(tile_row + lane % 8, (x % kBox + lane / 16 * 8) * 2),
              packed);
        } else {
          ptx::stmatrix<true>(chunk + swizzle(tile_col + lane % 8, tile_row * 2), packed);
        }
      }
      if constexpr (C.store.by_tma) ptx::fence_async_shared();
      if constexpr (kAtOnce) continue;
      ptx::named_barrier_sync(barrier_, 128);
      if constexpr (C.store.run_bytes > 0) {
        store_runs(p, tile, chunk, group_row + wave * 64, tile.n0 + col);
      } else if (issuer) {
        store_chunk(p, tile, i, chunk, group_row);
        ptx::tma_store_commit();
      }
      next_ = (next_ + 1) % C.store.chunks;
    }
    if constexpr (kAtOnce) {
      ptx::named_barrier_sync(barrier_, 128);
      if (issuer) {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kChunks; ++i) store_chunk(p, tile, i, staging_ + i * store_chunk_bytes(C), group_row);
        ptx::tma_store_commit();
      }
    }
    op.done();
  }

  /// Shared memory must outlive the stores that read it.
  CLEAVE_DEVICE static void drain() {
    if (C.store.by_tma && threadIdx.x % 128 == 0) ptx::tma_store_wait_read<0>();
  }

 private:
  static constexpr uint32_t kChunk = store_chunk_columns(C), kBox = store_box_columns(C);
  static constexpr uint32_t kBoxBytes = 64 * kBox * 2;
  static constexpr bool kRowMajor = C.epilogue.order == Order::row;
  static constexpr uint32_t kChunksPerRow = ceil_div(output_columns(C), kChunk);
  static constexpr uint32_t kChunks = Fragment<C>::kRows / 64 * kChunksPerRow;
  // Whether all chunks, if there is room for them, leave together: the warpgroup then meets twice, not twice a chunk.
  // Other kernels were not measured so (docs/notes/2026-11-scaled-gemm.md).
  static constexpr bool kAtOnce = C.epilogue.scaling == Scaling::block && C.store.by_tma && C.store.chunks >= kChunks;

  /// Chunk `i` of the tile, whose warpgroup's rows begin with `group_row`.
  CLEAVE_DEVICE static void store_chunk(const Params<C>& p, const Tile<C>& tile, uint32_t i, uint32_t chunk,
                                        uint32_t group_row) {
    const uint32_t row = group_row + i / kChunksPerRow * 64, col = i % kChunksPerRow * kChunk;
    if constexpr (kRowMajor) {
      const uint32_t columns = min_of(kChunk, output_columns(C) - col);
      CLEAVE_UNROLL
      for (uint32_t x = 0; x < columns; x += kBox)
        store_box(p, tile, chunk + x / kBox * kBoxBytes, tile.n0 + col + x, row, tile.m_end(p.size));
    } else {
      store_box(p, tile, chunk, row, tile.n0 + col, tile.n_end(p.size));
    }
  }

  /// The box whose first element is element `across` of D's line `line`; `end`: of the lines.
  CLEAVE_DEVICE static void store_box(const Params<C>& p, const Tile<C>& tile, uint32_t from, uint32_t across,
                                      uint32_t line, uint32_t end) {
    if constexpr (scatters(C)) {
      const ConvClass& c = *tile.conv_class;
      const TensorMap* const map = &p.maps[tile.conv_class - p.classes].output;
      const PixelCoord at = c.pixels.template locate<C.conv.axes, C.conv.fast_store>(line);
      if constexpr (C.conv.axes == 3) {
        ptx::tma_store_im2col(map, from, across, at.at[2], at.at[1], at.at[0], at.image);
      } else {
        ptx::tma_store_im2col(map, from, across, at.at[2], at.at[1], at.image);
      }
    } else if constexpr (stores_ragged(C.schedule.grouping, C.epilogue.order)) {
      const RaggedLine at(end, line);
      ptx::tma_store(&p.map_d, from, across, at.line, at.end, kRaggedExtent);
    } else {
      ptx::tma_store(&p.map_d, from, across, line, tile.batch);
    }
  }

  /// A chunk whose first element is (row0, column0) of the product: each thread takes one piece of a line of it,
  /// and those below.
  CLEAVE_DEVICE static void store_runs(const Params<C>& p, const Tile<C>& tile, uint32_t from, uint32_t row0,
                                       uint32_t column0) {
    constexpr uint32_t kBytes = C.store.run_bytes, kPieces = 128 / kBytes;
    static_assert(store_box_columns(C) == 64 && C.epilogue.order == Order::row);
    const uint32_t thread = threadIdx.x % 128, byte = thread % kPieces * kBytes;
    const uint32_t column = column0 + byte / 2;
    if (column >= p.size.n) return;
    const ConvClass& c = *tile.conv_class;
    const ColumnCoord run = tile.columns->lines.template locate<C.conv.axes, C.conv.fast_store>(column);
    const uint32_t run_row = tile.columns->output_row(run), run_edges = tile.columns->edges(run);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 64 * kPieces / 128; ++i) {
      const uint32_t row = (i * 128 + thread) / kPieces;
      if (row0 + row >= p.size.m) return;
      const PixelCoord pixel = c.pixels.template locate<C.conv.axes, C.conv.fast_store>(row0 + row);
      if ((edges(c.pixels, pixel) & run_edges) != 0) continue;
      const int64_t at = (c.output_row(pixel) + run_row) * p.epilogue.d_stride + run.channel;
      ptx::copy_shared_to_global<kBytes>(static_cast<char*>(p.epilogue.d) + at * 2,
                                         from + swizzle(row, byte & ~15u) + (byte & 15));
    }
  }

  uint32_t staging_, barrier_;
  uint32_t next_ = 0;
};

}  // namespace cleave
