// Weight gradients of few filters by tensor cores (sm_80 and later): as direct/spread.h has the data gradients, a pixel
// of the images is read once and meets all taps of the filters (config/direct_spread_wgrad.h).
//
// Roles      all warps load, then multiply: of warps.m x warps.n x warps.k, m share the channels, n the columns, which
//            are taps and filters; k of them take turns at steps of 16 pixels of a tile
// Operands   images from global memory to mma.sync's registers, those of the next step on their way: a thread loads 16
//            bytes of four pixels, and pairs what two of them have of a channel, so that channels are in another order
//            than in memory. Outputs' gradients in two stages of shared memory, in pairs as well
// Split      K: CTAs of the same channels take turns at tiles of pixels
// Sums       float32; a warp's, then those of a CTA in the order of its warps, then of the slices
//            (split_k/block_slices.h)
// Infinity   A pixel meets a zero where there is no output. Infinite ones are multiplied column by column instead, as
//            zeros where nothing meets them.
#pragma once

#include "cleave/config/direct_spread_wgrad.h"
#include "cleave/config/direct_work.h"
#include "cleave/epilogue/store_sum.h"
#include "cleave/ptx/load_global.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/ptx/packed_16.h"
#include "cleave/ptx/shared.h"
#include "cleave/split_k/block_slices.h"

namespace cleave {

template <GemmConfig C>
class DirectSpreadWgrad {
  static constexpr DType kType = C.operands.a;
  static constexpr DirectAxis kDepth = C.direct.depth, kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr uint32_t kWidth = tap_width(C), kLines = tap_lines(C), kSteps = C.tile.m / 16 / C.warps.k;
  static constexpr uint32_t kLine = tap_line(C), kPlane = tap_plane(C), kFilters = C.tile.n;
  static constexpr uint32_t kTaps = kDepth.taps * kDown.taps * kAcross.taps, kColumns = tap_columns(C);
  static constexpr uint32_t kBlocks = tap_blocks(C), kPairs = kSpreadOfWarp / 16, kMade = tap_made(C);
  static constexpr bool kHasGaps = kDepth.stride > 1 || kDown.stride > 1 || kAcross.stride > 1;
  static_assert(size_of(kType) == 2 && C.warps.m * C.warps.n * C.warps.k * 32 == kDirectThreads);
  static_assert(C.tile.m % (16 * C.warps.k) == 0 && kLines * kWidth * 2 == C.tile.m);
  static_assert(C.warps.m * kSpreadOfWarp == kSpreadChannels);

 public:
  CLEAVE_DEVICE DirectSpreadWgrad(const Params<C>& p, float* shared)
      : p_(p), shared_(shared), smem_(ptx::shared_address(shared)) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kBlocks; ++i)
      column_[i] = (tap_place(C, (column_block() + i) * 8 + lane() / 4).gradient + lane() % 4) * 4;
  }

  CLEAVE_DEVICE void run() {
    uint32_t stage = smem_;
    const uint32_t first = first_tile<C>(p_.shape);
    Tile tile = locate_tile(first);
    Pixels own;
    load(tile, 0, own);
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < kFillRounds; ++i) {
      Words words;
      load_words(tile, stage, i, words);
      store_words(stage, i, words);
    }
    float sums[kBlocks][kPairs][4] = {};
    for (uint32_t cta = first; cta < p_.shape.tiles; cta += gridDim.x) {
      __syncthreads();  // the other stage's readers are done, too
      const uint32_t other = 2 * smem_ + tap_words(C) * 4 - stage;
      const bool last = cta + gridDim.x >= p_.shape.tiles;
      const bool whole = tile.whole;
      const Tile next = last ? tile : locate_tile(cta + gridDim.x);
      CLEAVE_NO_UNROLL
      for (uint32_t step = 0; step < kSteps; ++step) {
        Words words;
        const bool fills = step < kFillRounds && !last;
        if (fills) load_words(next, other, step, words);
        uint32_t rows[kPairs][4];
        pair_up(own, rows);
        const bool leaves = step + 1 == kSteps;
        if (leaves) tile = next;
        load(tile, leaves ? 0 : step + 1, own);  // the last tile's first step again
        multiply(whole, stage, step, rows, sums);
        if (fills) store_words(other, step, words);
      }
      CLEAVE_NO_UNROLL
      for (uint32_t i = kSteps; i < kFillRounds && !last; ++i) {
        Words words;
        load_words(next, other, i, words);
        store_words(other, i, words);
      }
      stage = other;
    }
    add_warps(sums);
    add_slices<C, kMade>(p_, shared_, [this](uint32_t i, float sum) { store(i, sum); });
  }

 private:
  /// A vector of each of a thread's pixels of a step: of two that are four apart, and of those half a tile below them.
  using Pixels = uint32_t[4][kSpreadVector / 2];

  /// Words that a thread fills at once; and how often, for all of a stage but the filters' own planes.
  static constexpr uint32_t kAtOnce = 1;
  static constexpr uint32_t kFillRounds = ceil_div(tap_filled(C), kAtOnce* kDirectThreads);
  using Words = uint32_t[kAtOnce][2];

  struct Tile {
    const uint16_t* pixels = nullptr;  // a thread's first
    uint32_t y = 0, x = 0;             // the tile's first
    int32_t depth = 0;                 // how far after what meets the first output by the first tap
    uint32_t outputs = 0;              // the image's first plane of outputs
    uint32_t lines = 0, columns = 0;   // of the image, from the thread's first pixel
    bool whole = false;                // all its pixels meet an output at each tap
  };

  /// The CTA's filters and channels, the first of each, and where a warp's columns begin. Found anew each time: no
  /// registers are left to keep them.
  CLEAVE_DEVICE uint32_t block() const { return own_slice<C>(p_.shape).block; }
  CLEAVE_DEVICE static uint32_t lane() { return threadIdx.x % 32; }
  CLEAVE_DEVICE uint32_t blocks_of_channels() const { return ceil_div(p_.shape.channels, kSpreadChannels); }
  CLEAVE_DEVICE uint32_t filter0() const { return block() / blocks_of_channels() * kFilters; }
  CLEAVE_DEVICE uint32_t channel0() const { return block() % blocks_of_channels() * kSpreadChannels; }
  CLEAVE_DEVICE uint32_t column_block() const { return threadIdx.x / 32 / C.warps.m % C.warps.n * kBlocks; }
  CLEAVE_DEVICE uint32_t part_of_channels() const { return threadIdx.x / 32 % C.warps.m; }
  CLEAVE_DEVICE uint32_t turn() const { return threadIdx.x / 32 / (C.warps.m * C.warps.n); }

  CLEAVE_DEVICE Tile locate_tile(uint32_t cta) const {
    const DirectTile at = locate(p_.shape, cta);
    const uint32_t across = lane() % 4;
    const uint32_t channel = channel0() + part_of_channels() * kSpreadOfWarp + lane() / 4 * kSpreadVector;
    Tile tile{.y = at.row * kLines * 2, .x = at.column * kWidth};
    const uint32_t after = p_.shape.gathered[1] - tile.x;
    tile.lines = p_.shape.gathered[0] - tile.y;
    tile.columns = channel < p_.shape.channels && after > across ? after - across : 0;
    tile.pixels = static_cast<const uint16_t*>(p_.b.data) + channel +
                  pixel_number(int64_t(at.image), tile.y, tile.x + across, p_.shape.gathered) * p_.b.stride;
    uint32_t image, depth;
    p_.shape.depths.divmod(at.image, image, depth);
    tile.depth = int32_t(depth) + p_.shape.pad_depth;
    tile.outputs = image * p_.shape.met_depth;
    const auto inside = [](DirectAxis axis, int32_t first, uint32_t more, uint32_t outputs) {
      return first >= int32_t(tap_reach(axis)) && first + int32_t(more) < int32_t(outputs);
    };
    tile.whole = !kHasGaps && inside(kDepth, tile.depth, 0, p_.shape.met_depth) &&
                 inside(kDown, int32_t(tile.y) + p_.shape.pad[0], kLines * 2 - 1, p_.shape.made[0]) &&
                 inside(kAcross, int32_t(tile.x) + p_.shape.pad[1], kWidth - 1, p_.shape.made[1]);
    return tile;
  }

  /// A warp's step of a tile: its first pixel, in the upper half.
  CLEAVE_DEVICE uint32_t first_pixel(uint32_t step) const { return (turn() + step * C.warps.k) * kSpreadAcross; }

  /// Zeros outside of the images, and after the last channel. A tile's elements are counted in 32 bits.
  CLEAVE_DEVICE void load(const Tile& tile, uint32_t step, Pixels& to) const {
    const auto stride = uint32_t(p_.b.stride);
    const uint32_t at = first_pixel(step), line = at / kWidth, column = at % kWidth;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t below = line + i % 2 * kLines, after = column + i / 2 * (kSpreadAcross / 2);
      ptx::load_global_if<kSpreadVector * 2>(to[i], tile.pixels + (below * p_.shape.gathered[1] + after) * stride,
                                             below < tile.lines && after < tile.columns);
    }
  }

  /// Rows are channels, two of a pair of registers; K's neighbours a pixel and the one half a tile below it.
  CLEAVE_DEVICE static void pair_up(const Pixels& own, uint32_t (&rows)[kPairs][4]) {
    CLEAVE_UNROLL
    for (uint32_t pair = 0; pair < kPairs; ++pair) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i)
        rows[pair][i] = __byte_perm(own[i / 2 * 2][pair], own[i / 2 * 2 + 1][pair], i % 2 == 0 ? 0x5410 : 0x7632);
    }
  }

  CLEAVE_DEVICE static uint32_t word_number(uint32_t round, uint32_t i) {
    return (round * kAtOnce + i) * kDirectThreads + threadIdx.x;
  }

  /// Outputs' gradients that the tile meets are on their way, and which of them exist is in shared memory. Filters are
  /// next to each other in memory, and planes apart.
  CLEAVE_DEVICE void load_words(const Tile& tile, uint32_t stage, uint32_t round, Words& words) const {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t number = word_number(round, i);
      const TapWord word = tap_word(C, number);
      const int32_t z = output_at(kDepth, tile.depth - int32_t(word.tap * kDepth.dilation), p_.shape.met_depth);
      const int32_t x = output_at(
          kAcross, int32_t(tile.x + word.column) + p_.shape.pad[1] - int32_t(tap_reach(kAcross)), p_.shape.made[1]);
      const uint32_t filter = filter0() + word.filter;
      uint32_t exist = 0;
      CLEAVE_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const int32_t u = int32_t(tile.y + word.line + half * kLines) + p_.shape.pad[0] - int32_t(tap_reach(kDown));
        const int32_t y = output_at(kDown, u, p_.shape.made[0]);
        const bool exists = number < tap_filled(C) && z >= 0 && y >= 0 && x >= 0;
        if (exists) exist |= half == 0 ? 0x0000ffffu : 0xffff0000u;
        const int64_t at = pixel_number(int64_t(tile.outputs) + z, y, x, p_.shape.made);
        ptx::load_global_if<2>(&words[i][half], static_cast<const uint16_t*>(p_.a.data) + at * p_.a.stride + filter,
                               exists && filter < p_.size.m);
      }
      if (number < tap_filled(C) && word.filter == 0)
        ptx::store_shared_32(stage + (tap_word_at(C, word) + kFilters * kPlane) * 4, exist);
    }
  }

  CLEAVE_DEVICE void store_words(uint32_t stage, uint32_t round, const Words& words) const {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t number = word_number(round, i);
      if (number < tap_filled(C))
        ptx::store_shared_32(stage + tap_word_at(C, tap_word(C, number)) * 4, words[i][0] | words[i][1] << 16);
    }
  }

  CLEAVE_DEVICE void multiply(bool whole, uint32_t stage, uint32_t step, const uint32_t (&rows)[kPairs][4],
                              float (&sums)[kBlocks][kPairs][4]) const {
    const uint32_t at = first_pixel(step), from = stage + (at / kWidth * kLine + at % kWidth) * 4;
    if (!whole && is_infinite(rows)) return multiply_apart(from, rows, sums);
    CLEAVE_UNROLL
    for (uint32_t block = 0; block < kBlocks; ++block) {
      const uint32_t cols[2] = {ptx::load_shared_32(from + column_[block]),
                                ptx::load_shared_32(from + column_[block] + kSpreadAcross / 2 * 4)};
      CLEAVE_UNROLL
      for (uint32_t pair = 0; pair < kPairs; ++pair)
        ptx::mma<kType, kType>(sums[block][pair], rows[pair], cols[0], cols[1]);
    }
  }

  /// Whether some of the warp's pixels are not finite: times zero they are no zeros.
  CLEAVE_DEVICE static bool is_infinite(const uint32_t (&rows)[kPairs][4]) {
    uint32_t zeros = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPairs * 4; ++i) zeros = ptx::multiply_add_pair<kType>(rows[i / 4][i % 4], 0, zeros);
    return __any_sync(0xffffffff, (zeros & 0x7fff7fff) != 0);
  }

  /// Column by column, each with the pixels that it meets.
  CLEAVE_DEVICE void multiply_apart(uint32_t from, const uint32_t (&rows)[kPairs][4],
                                    float (&sums)[kBlocks][kPairs][4]) const {
    CLEAVE_UNROLL
    for (uint32_t block = 0; block < kBlocks; ++block) {
      const uint32_t cols[2] = {ptx::load_shared_32(from + column_[block]),
                                ptx::load_shared_32(from + column_[block] + kSpreadAcross / 2 * 4)};
      CLEAVE_NO_UNROLL
      for (uint32_t column = 0; column < 8; ++column) {
        const uint32_t mask = from + (tap_place(C, (column_block() + block) * 8 + column).mask + lane() % 4) * 4;
        const uint32_t exist[2] = {ptx::load_shared_32(mask), ptx::load_shared_32(mask + kSpreadAcross / 2 * 4)};
        CLEAVE_UNROLL
        for (uint32_t pair = 0; pair < kPairs; ++pair) {
          uint32_t met[4];
          float added[4];
          CLEAVE_UNROLL
          for (uint32_t i = 0; i < 4; ++i) met[i] = rows[pair][i] & exist[i / 2], added[i] = sums[block][pair][i];
          ptx::mma<kType, kType>(added, met, cols[0], cols[1]);
          CLEAVE_UNROLL
          for (uint32_t i = 0; i < 4; ++i)
            if (lane() % 4 * 2 + i % 2 == column) sums[block][pair][i] = added[i];
        }
      }
    }
  }

  /// Into shared memory, as they lie in registers.
  CLEAVE_DEVICE void add_warps(const float (&sums)[kBlocks][kPairs][4]) const {
    CLEAVE_NO_UNROLL
    for (uint32_t of = 0; of < C.warps.k; ++of) {
      __syncthreads();
      if (of != turn()) continue;
      CLEAVE_UNROLL
      for (uint32_t block = 0; block < kBlocks; ++block) {
        CLEAVE_UNROLL
        for (uint32_t pair = 0; pair < kPairs; ++pair) {
          CLEAVE_UNROLL
          for (uint32_t i = 0; i < 4; ++i) {
            float& sum = shared_[tap_sum_number(column_block() + block, part_of_channels() * kPairs + pair, i, lane())];
            sum = of == 0 ? sums[block][pair][i] : sum + sums[block][pair][i];
          }
        }
      }
    }
    __syncthreads();
  }

  CLEAVE_DEVICE void store(uint32_t number, float sum) const {
    const TapSum at = tap_sum(number);
    const uint32_t filter = filter0() + at.column / kTaps, channel = channel0() + at.channel;
    if (at.column < kColumns && filter < p_.size.m && channel < p_.shape.channels)
      store_sum<C>(p_.epilogue, filter, at.column % kTaps * p_.shape.channels + channel, sum);
  }

  const Params<C>& p_;
  float* shared_;
  const uint32_t smem_;
  uint32_t column_[kBlocks];  // where a thread's columns begin in a stage, in bytes
};

}  // namespace cleave
