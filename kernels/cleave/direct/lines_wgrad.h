// Weight gradients of few filters by tensor cores (sm_80 and later): pixels lie in shared memory once for all taps, as
// direct/shift.h has them, and what taps down the images share of them is in registers (config/direct_lines.h).
//
// Roles      all warps copy, then multiply: of warps.m x warps.k, each of m has 16 channels, all filters and all taps
//            of a plane; k of them take turns at strips of outputs, down all lines of a tile
// Operands   pixels and outputs' gradients in two stages of shared memory, both as they lie in memory. Channels are
//            rows, eight filters columns: ldmatrix turns the pixels, and gradients are read in pairs
// Split      K: CTAs of the same channels, and of the same tap down the depth, take turns at tiles of outputs
// Sums       float32; a warp's, then those of a CTA in the order of its warps, then of the slices
//            (split_k/block_slices.h)
#pragma once

#include "cleave/config/direct_lines.h"
#include "cleave/config/direct_work.h"
#include "cleave/direct/shift_pixels.h"
#include "cleave/epilogue/store_sum.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/split_k/block_slices.h"

namespace cleave {

template <GemmConfig C>
class DirectLinesWgrad {
  static constexpr DType kType = C.operands.a;
  static constexpr DirectAxis kDepth = C.direct.depth, kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr uint32_t kTaps = kDown.taps * kAcross.taps, kMade = direct_made(C);
  static constexpr uint32_t kFilters = C.tile.n, kEights = ceil_div(kFilters, 8u);
  static constexpr uint32_t kHeight = line_height(C), kHeld = lines_held(kDown), kKept = kHeld - lines_left(kDown);
  static constexpr uint32_t kPixelBytes = shift_pixel_bytes(C), kLineBytes = line_columns(C) * kPixelBytes;
  static constexpr uint32_t kGradientBytes = line_gradient_bytes(C);
  static_assert(size_of(kType) == 2 && C.warps.m * C.warps.k * 32 == kDirectThreads);
  static_assert(C.warps.m * kLineChannels == C.tile.k && kHeight % 2 == 0 && shift_channels(C) == C.tile.k);
  static_assert(C.direct.strips % C.warps.k == 0);

 public:
  CLEAVE_DEVICE DirectLinesWgrad(const Params<C>& p, float* shared)
      : p_(p), shared_(shared), smem_(ptx::shared_address(shared)) {}

  CLEAVE_DEVICE void run() {
    if (threadIdx.x < kShiftZeros / 4) ptx::store_shared_32(smem_ + threadIdx.x * 4, 0);
    uint32_t stage = smem_ + kShiftZeros;
    const uint32_t first = first_tile<C>(p_.shape);
    load(first, stage);
    WarpSums sums = {};
    for (uint32_t cta = first; cta < p_.shape.tiles; cta += gridDim.x) {
      ptx::copy_async_wait<0>();
      __syncthreads();  // the other stage's readers are done, too
      const uint32_t other = 2 * (smem_ + kShiftZeros) + line_stage_bytes(C) - stage;
      load(cta + gridDim.x, other);
      multiply(locate_tile(cta), stage, sums);
      stage = other;
    }
    ptx::copy_async_wait<0>();
    add_warps(sums);
    add_slices<C, kMade>(p_, shared_, [this, block = own_block()](uint32_t i, float sum) { store(block, i, sum); });
  }

 private:
  using WarpSums = float[kTaps][kEights][4];
  using Lines = uint32_t[kAcross.taps][max_of(kKept, 1u)][2];  // of two eights of channels

  struct Tile {
    DirectTile gathered;              // whose image is the plane that it meets,
    bool exists = false;              // if there is one;
    uint32_t output = 0;              // and the plane of outputs
    uint32_t lines = 0, columns = 0;  // of outputs
  };

  /// Which channels the CTA has, and the tap down the depth. Found anew each time: no registers are left to keep them.
  struct Block {
    uint32_t channels, tap;
  };
  CLEAVE_DEVICE Block own_block() const {
    const uint32_t block = own_slice<C>(p_.shape).block;
    const uint32_t blocks = ceil_div(p_.shape.channels, C.tile.k);
    return {block % blocks, block / blocks};
  }

  CLEAVE_DEVICE Tile locate_tile(uint32_t cta) const {
    if (cta >= p_.shape.tiles) return {};
    const Block block = own_block();
    Tile tile{.gathered = locate(p_.shape, cta)};
    uint32_t image, depth;
    p_.shape.depths.divmod(tile.gathered.image, image, depth);
    const int32_t z = kDepth.map(p_.shape.pad_depth).at(depth, block.tap);
    tile.output = tile.gathered.image;
    tile.lines = min_of(p_.shape.made[0] - tile.gathered.row * kHeight, kHeight);
    tile.columns = min_of(p_.shape.made[1] - tile.gathered.column * line_width(C), line_width(C));
    tile.exists = is_inside(z, p_.shape.met_depth);
    tile.gathered.image = image * p_.shape.met_depth + uint32_t(z);
    tile.gathered.channel = block.channels;
    return tile;
  }

  /// A tile's pixels, and its outputs' gradients: zeros past the ends of lines.
  CLEAVE_DEVICE void load(uint32_t cta, uint32_t stage) const {
    if (const Tile tile = locate_tile(cta); tile.exists) {
      load_shift_pixels<C>(p_.shape, p_.b, tile.gathered, stage);
      constexpr uint32_t kPiece = line_piece(kFilters), kPieces = kGradientBytes / kPiece;
      const auto* const gradients = static_cast<const char*>(p_.a.data);
      const int64_t first = pixel_number(int64_t(tile.output), tile.gathered.row * kHeight,
                                         tile.gathered.column * line_width(C), p_.shape.made);
#pragma unroll 4
      for (uint32_t i = threadIdx.x; i < kHeight * kPieces; i += kDirectThreads) {
        const uint32_t line = i / kPieces, at = i % kPieces * kPiece;
        const bool exists = line < tile.lines && at < tile.columns * (kFilters * 2);
        const int64_t from = (first + line * p_.shape.made[1]) * (kFilters * 2) + at;
        ptx::copy_async<kPiece>(stage + line_pixels_bytes(C) + i * kPiece, gradients + (exists ? from : 0),
                                exists ? kPiece : 0);
      }
    }
    ptx::copy_async_commit();
  }

  CLEAVE_DEVICE void multiply(const Tile& tile, uint32_t stage, WarpSums& sums) const {
    if (!tile.exists) return;
    const uint32_t warp = threadIdx.x / 32, across = lane_ % 8 * kAcross.stride * kPixelBytes;
    const uint32_t pixels = stage + across + warp % C.warps.m * (kLineChannels * 2) + lane_ / 8 % 2 * 16;
    const uint32_t gradients = stage + line_pixels_bytes(C) + (lane_ % 4 * 2 * kFilters + lane_ / 4) * 2;
    CLEAVE_NO_UNROLL
    for (uint32_t strip = 0; strip < C.direct.strips; strip += C.warps.k) {
      const uint32_t column = (strip + warp / C.warps.m) * kLineStrip;
      if (column >= tile.columns) return;
      // What meets no output may be infinite.
      const bool exists = column + lane_ % 8 < tile.columns;
      go_down(pixels + column * kAcross.stride * kPixelBytes, exists, gradients + column * (kFilters * 2), tile.lines,
              sums);
    }
  }

  /// A strip of all of a tile's `lines` of outputs. `exists`: whether the lane's output along them does.
  CLEAVE_DEVICE void go_down(uint32_t from, bool exists, uint32_t gradients, uint32_t lines, WarpSums& sums) const {
    Lines kept = {};
    CLEAVE_UNROLL
    for (uint32_t s = 0; s < kAcross.taps; ++s)
      load_lines<0, kKept>(from + s * kAcross.dilation * kPixelBytes, exists, kept[s]);
#pragma unroll 2  // what is kept goes from registers to others and back
    for (uint32_t line = 1; line < lines; line += 2) {
      add_lines<true>(from, exists, gradients, kept, sums);
      from += 2 * kDown.stride * kLineBytes;
      gradients += 2 * kGradientBytes;
    }
    if (lines % 2 != 0) add_lines<false>(from, exists, gradients, kept, sums);
  }

  /// Those of a tap along the lines, from `First` on, before `End`, two at a time. `from`: the lane's pixel of the
  /// first of all held ones.
  template <uint32_t First, uint32_t End>
  CLEAVE_DEVICE void load_lines(uint32_t from, bool exists, uint32_t (*lines)[2]) const {
    if constexpr (First < End) {
      constexpr bool kFirst = is_line_met(kDown, First), kSecond = First + 1 < End && is_line_met(kDown, First + 1);
      if constexpr (kFirst || kSecond) {
        constexpr uint32_t kBegin = kFirst ? First : First + 1;
        const uint32_t at = from + kBegin * kLineBytes + (kFirst && kSecond ? lane_ / 16 * kLineBytes : 0);
        uint32_t loaded[4];
        ptx::ldmatrix<true>(exists ? at : smem_, loaded);
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < 2; ++i) {
          lines[kBegin][i] = loaded[i];
          if constexpr (kFirst && kSecond) lines[First + 1][i] = loaded[2 + i];
        }
      }
      load_lines<First + 2, End>(from, exists, lines);
    }
  }

  /// What two lines of outputs add, of which the second exists if `Both` do. Keeps what the next two meet again.
  template <bool Both>
  CLEAVE_DEVICE void add_lines(uint32_t from, bool exists, uint32_t gradients, Lines& kept, WarpSums& sums) const {
    uint32_t columns[kEights][2];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kEights * 2; ++i) {
      const uint32_t at = gradients + i % 2 * kGradientBytes + i / 2 * 16;
      columns[i / 2][i % 2] = ptx::load_shared_16(at) | ptx::load_shared_16(at + kFilters * 2) << 16;
    }
    CLEAVE_UNROLL
    for (uint32_t s = 0; s < kAcross.taps; ++s) {
      uint32_t lines[kHeld][2];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kKept * 2; ++i) lines[i / 2][i % 2] = kept[s][i / 2][i % 2];
      load_lines<kKept, kHeld>(from + s * kAcross.dilation * kPixelBytes, exists, lines);
      CLEAVE_UNROLL
      for (uint32_t r = 0; r < kDown.taps; ++r) {
        const auto &first = lines[line_met(kDown, 0, r)], &second = lines[line_met(kDown, 1, r)];
        const uint32_t rows[4] = {first[0], first[1], Both ? second[0] : 0, Both ? second[1] : 0};
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kEights; ++i)
          ptx::mma<kType, kType>(sums[r * kAcross.taps + s][i], rows, columns[i][0], columns[i][1]);
      }
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kKept * 2; ++i) kept[s][i / 2][i % 2] = lines[i / 2 + kHeld - kKept][i % 2];
    }
  }

  /// Into shared memory, filter by filter, a tap's channels after each other.
  CLEAVE_DEVICE void add_warps(const WarpSums& sums) const {
    const auto place = [](const StripSum& of) { return of.filter * kTaps * C.tile.k + of.channel; };
    const StripSum first = strip_sum(lane_, 0, 0);
    float* const own = shared_ + threadIdx.x / 32 % C.warps.m * kLineChannels + place(first);
    CLEAVE_NO_UNROLL
    for (uint32_t turn = 0; turn < C.warps.k; ++turn) {
      __syncthreads();
      if (turn != threadIdx.x / 32 / C.warps.m) continue;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kEights * 4; ++i) {
        __syncwarp();  // all of them side by side would want too many registers
        const StripSum of = strip_sum(0, i / 4, i % 4);
        if (first.filter + of.filter >= kFilters) continue;
        CLEAVE_UNROLL
        for (uint32_t tap = 0; tap < kTaps; ++tap) {
          float& sum = own[place(of) + tap * C.tile.k];
          sum = turn == 0 ? sums[tap][i / 4][i % 4] : sum + sums[tap][i / 4][i % 4];
        }
      }
    }
    __syncthreads();
  }

  CLEAVE_DEVICE void store(const Block& block, uint32_t i, float sum) const {
    const uint32_t channel = block.channels * C.tile.k + i % C.tile.k, tap = block.tap * kTaps + i / C.tile.k % kTaps;
    if (channel < p_.shape.channels)
      store_sum<C>(p_.epilogue, i / (C.tile.k * kTaps), tap * p_.shape.channels + channel, sum);
  }

  const Params<C>& p_;
  float* shared_;
  const uint32_t smem_, lane_ = threadIdx.x % 32;
};

}  // namespace cleave
