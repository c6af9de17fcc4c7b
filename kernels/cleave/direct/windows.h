// Forward convolutions of few channels, as a network's first layer is, and data gradients of few filters, as its last
// one is, by tensor cores (sm_80 and later): copied tap by tap, pixels of some bytes each would take longer than the
// product.
//
// Roles      all warps copy lines of the images, then multiply: a warp has 32 outputs of a line, `direct.strips` warps
//            follow each other along it, the others have the lines below. CTAs go from tile to tile, of the same
//            filters
// Operands   lines as they lie in memory, in two stages of shared memory; a window (config/direct_windows.h) is read
//            from there into mma.sync's registers. Filters in shared memory, for all tiles
// Sums       float32, in the order of the taps
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/threads.h"
#include "cleave/direct/window_lines.h"
#include "cleave/epilogue/store_direct.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/epilogue/store_rows.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/ptx/shared.h"

namespace cleave {

template <GemmConfig C>
class DirectWindows {
  static constexpr DirectConfig D = C.direct;
  static constexpr DType kType = C.operands.a;
  static constexpr bool kBack = C.conv.kind == Conv::dgrad;
  static constexpr uint32_t kRun = window_run(D), kGroups = kRun / 8, kStep = window_step(D);
  static constexpr uint32_t kSteps = window_depth(D) / 16, kFilterBytes = window_filter_bytes(D);
  static constexpr uint32_t kLineBytes = window_words(C) * 4;
  static constexpr uint32_t kRowBlocks = Fragment<C>::kRows / 16, kColBlocks = Fragment<C>::kColBlocks;
  static_assert(size_of(kType) == 2 && Fragment<C>::kRows == kWindowStrip && C.warps.n == 1 && kColBlocks % 2 == 0);
  static_assert(!kBack || (D.depth.stride == 1 && D.height.stride == 1 && D.width.stride == 1));

 public:
  CLEAVE_DEVICE DirectWindows(const Params<C>& p, uint32_t smem)
      : p_(p), fragment_(threadIdx.x), filters_(smem), stages_(smem + window_filters_bytes(C)) {
    const uint32_t pair = lane_ % 4 * 2;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kGroups; ++i) {
      const bool first = filter_element(D, i * 8 + pair) >= 0, second = filter_element(D, i * 8 + pair + 1) >= 0;
      in_window_[i] = (first ? 0x0000ffffu : 0) | (second ? 0xffff0000u : 0);
    }
  }

  CLEAVE_DEVICE void run() {
    uint32_t next = blockIdx.x, stage = stages_;
    const uint32_t channel0 = locate(p_.shape, next).channel * C.tile.n;  // of all its tiles
    load_lines(next, stage);
    load_filters(channel0);
    for (uint32_t cta = next; cta < p_.shape.tiles; cta = next) {
      ptx::copy_async_wait<0>();
      __syncthreads();  // the filters are there as well, and the other stage's readers are done
      next = cta + gridDim.x;
      const uint32_t other = 2 * stages_ + window_stage_bytes(C) - stage;
      load_lines(next, other);
      finish(locate(p_.shape, cta), channel0, stage);
      stage = other;
    }
  }

 private:
  /// Where a column's element lies, from its tile's first column: of gradients, a tap's columns follow each other.
  CLEAVE_DEVICE int64_t filter_place(uint32_t column, uint32_t element) const {
    constexpr uint32_t kLast = D.depth.taps * D.height.taps * D.width.taps - 1;
    if (!kBack) return column * p_.b.stride + element;
    return element % D.vector * p_.b.stride + (kLast - element / D.vector) * p_.shape.channels + column;
  }

  /// By all threads, neighbours in memory; K's elements of no window are zeros.
  CLEAVE_DEVICE void load_filters(uint32_t channel0) const {
    constexpr uint32_t kDepth = window_depth(D), kCount = C.tile.n * kDepth;
    const auto* const from = static_cast<const uint16_t*>(p_.b.data) + channel0 * (kBack ? 1 : p_.b.stride);
    const auto column = [](uint32_t at) { return kBack ? at % C.tile.n : at / kDepth; };
    const auto place = [](uint32_t at) { return kBack ? at / C.tile.n : at % kDepth; };
    constexpr uint32_t kAtOnce = 16;  // on their way
    for (uint32_t first = threadIdx.x; first < kCount; first += kAtOnce * kDirectThreads) {
      uint16_t values[kAtOnce];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t at = first + i * kDirectThreads;
        const int32_t element = filter_element(D, place(at));
        const bool exists = at < kCount && element >= 0 && channel0 + column(at) < p_.shape.channels;
        values[i] = exists ? from[filter_place(column(at), uint32_t(element))] : uint16_t(0);
      }
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t at = first + i * kDirectThreads;
        if (at < kCount)
          ptx::store_shared_16(filters_ + window_filter_row(C, column(at)) * kFilterBytes + place(at) * 2, values[i]);
      }
    }
  }

  CLEAVE_DEVICE void load_lines(uint32_t cta, uint32_t stage) const {
    if (cta < p_.shape.tiles) load_window_lines<C>(p_.shape, p_.a, locate(p_.shape, cta), stage);
    ptx::copy_async_commit();
  }

  /// A warp's sums, and what D holds of them.
  CLEAVE_DEVICE void finish(const DirectTile& at, uint32_t channel0, uint32_t stage) const {
    const uint32_t warp = threadIdx.x / 32, strip = warp % D.strips, row = warp / D.strips;
    const uint32_t line = at.row * window_rows(C) + row, column = (at.column * D.strips + strip) * kWindowStrip;
    if (line >= p_.shape.made[0] || column >= p_.shape.made[1]) return;
    Sums<C> sums = {};
    // Rows of a fragment are 8 windows apart, or 16: what one of them begins with, in words, is a whole number.
    const uint32_t window = (strip * kWindowStrip + lane_ / 4) * kStep;
    multiply(stage + row * D.height.stride * kLineBytes + (window / 2 + lane_ % 4) * 4, window % 2 * 16, sums);
    const uint32_t first = pixel_number(at.image, line, 0u, p_.shape.made);
    if constexpr (deals_windows(C)) {
      store_dealt(first + column, p_.shape.made[1] - column, channel0, sums);
      return;
    }
    const Tile<C> tile{
        fragment_, first + column - warp * kWindowStrip, channel0, 0, first + p_.shape.made[1], nullptr, nullptr,
        false};
    GlobalBroadcast<C> broadcast(p_, tile);
    if constexpr (C.store.run_bytes > 0) {
      store_rows<C>(p_, tile, broadcast, sums);
    } else {
      store_direct<C>(p_, tile, broadcast, sums);
    }
  }

  /// Pixels from `first` on, of which the line has `count` more; channels of blocks from `Block` on, as filters were
  /// dealt.
  template <uint32_t Block = 0>
  CLEAVE_DEVICE void store_dealt(uint32_t first, uint32_t count, uint32_t channel0, const Sums<C>& sums) const {
    if constexpr (Block < kColBlocks) {
      constexpr uint32_t kVector = min_of(kColBlocks - Block, 4u) * 2;
      const uint32_t channel = channel0 + Block * 8 + lane_ % 4 * kVector;
      if (channel >= p_.shape.channels) return;
      const PixelStore<C, kVector> store(p_, channel);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowBlocks * 2; ++i) {
        const uint32_t row = i * 8 + lane_ / 4;
        float values[kVector];
        CLEAVE_UNROLL
        for (uint32_t v = 0; v < kVector; ++v)
          values[v] = sums[(i / 2 * kColBlocks + Block + v / 2) * 4 + i % 2 * 2 + v % 2];
        if (row < count) store(first + row, values);
      }
      store_dealt<Block + 4>(first, count, channel0, sums);
    }
  }

  /// `from`: this thread's pair of the first group of K, in its first row's window; `shift`: bits before it in that
  /// word.
  CLEAVE_DEVICE void multiply(uint32_t from, uint32_t shift, Sums<C>& sums) const {
    const uint32_t filters = filters_ + (lane_ / 16 * 8 + lane_ % 8) * kFilterBytes + lane_ / 8 % 2 * 16;
    CLEAVE_UNROLL
    for (uint32_t step = 0; step < kSteps; ++step) {
      uint32_t rows[kRowBlocks][4], cols[kColBlocks / 2][4];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowBlocks; ++i) {
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < 4; ++j)
          rows[i][j] = window_pair(from + (i * 16 + j % 2 * 8) * kStep * 2, step * 2 + j / 2, shift);
      }
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kColBlocks / 2; ++j)
        ptx::ldmatrix<false>(filters + j * 16 * kFilterBytes + step * 32, cols[j]);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kRowBlocks; ++i) {
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < kColBlocks; ++j)
          ptx::mma<kType, kType>(&sums[(i * kColBlocks + j) * 4], rows[i], cols[j / 2][j % 2 * 2],
                                 cols[j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  /// Two neighbours of K, of its group `group`.
  CLEAVE_DEVICE uint32_t window_pair(uint32_t from, uint32_t group, uint32_t shift) const {
    const uint32_t line = group / kGroups, in_run = group % kGroups;
    if (line >= D.depth.taps * D.height.taps) return 0;
    const uint32_t in_stage = line / D.height.taps * window_lines(C) + line % D.height.taps * D.height.dilation;
    const uint32_t at = from + in_stage * kLineBytes + in_run * 16;
    uint32_t pair = ptx::load_shared_32(at);
    if constexpr (kStep % 2 != 0) pair = __funnelshift_r(pair, ptx::load_shared_32(at + 4), shift);
    const bool whole = filter_element(D, in_run * 8) >= 0 && filter_element(D, in_run * 8 + 7) >= 0;
    return whole ? pair : pair & in_window_[in_run];
  }

  const Params<C>& p_;
  const Fragment<C> fragment_;
  const uint32_t filters_, stages_, lane_ = threadIdx.x % 32;
  uint32_t in_window_[kGroups];  // bits of this thread's pair of each group of a run
};

}  // namespace cleave
