// Convolutions of 32 to 128 channels, and their data gradients, by WGMMA, line by line down the images (sm_90a). A tile
// of few filters would have its pixels come to shared memory once for each tap, and be read again for each: its speed
// is shared memory's. Here a line comes once, and a multiplication has a block of columns for each line that it is met
// by: what it makes of one line ends, the others go on.
//
// Roles      two warpgroups, each with lines of its own: it copies them, some ahead, multiplies 64 neighbouring pixels
//            with all filters of the CTA, and stores a line at a time. One multiplies while the other stores
// Operands   gathered lines, with what lies around them, in a ring of shared memory, swizzled; a tap along the line is
//            a row further on. All filters of the CTA, for the whole launch. Short lines of neighbouring images lie
//            beside each other
// Sums       float32, by gathered line from above, then in the order of planes and taps along the line
#pragma once

#include "cleave/config/direct_sweep.h"
#include "cleave/config/gemm_params.h"
#include "cleave/direct/column_share.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/epilogue/transpose_in_quad.h"
#include "cleave/memory/descriptor.h"
#include "cleave/memory/swizzle.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/tma.h"
#include "cleave/ptx/wgmma.h"

namespace cleave {

template <GemmConfig C>
class DirectSweep {
  static constexpr DType kType = C.operands.a;
  static constexpr bool kBack = C.conv.kind == Conv::dgrad;
  static constexpr DirectAxis kDepth = C.direct.depth, kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr uint32_t kWidth = sweep_width(C), kParts = sweep_parts(C), kColumns = sweep_columns(C);
  static constexpr uint32_t kSteps = kWidth / 32;                   // instructions of a part
  static constexpr uint32_t kRowsOfPart = kWidth / size_of(kType);  // channels
  static constexpr Major kMajor = kBack ? Major::mn : Major::k;     // of the filters
  static constexpr uint32_t kFilterLine = kBack ? line_bytes(kMajor, kColumns, kType) : kWidth;
  static constexpr uint32_t kLineBytes = sweep_line_bytes(C), kStages = C.tile.stages, kAhead = kStages - 1;
  static constexpr uint32_t kReach = sweep_reach(C), kPieces = kWidth / 16;  // of a pixel's part
  static constexpr uint32_t kLinePieces = kReach * kParts * kPieces, kThreads = kDirectThreads / kSweepGroups;
  static constexpr uint32_t kOwn = ceil_div(kLinePieces, kThreads);
  static constexpr uint32_t kSums = kColumns / 2, kMade = C.tile.n / 2;  // of a thread; of a line
  static constexpr uint32_t kStores = C.tile.n / 32;                     // of 8 channels, of a row
  static_assert(size_of(kType) == 2 && kColumns % 16 == 0 && kColumns <= 256 && C.tile.n % 32 == 0 && kAhead > 0);
  static_assert(kDown.stride == 1 && kAcross.stride == 1 && kDown.dilation == 1 && kAcross.dilation == 1);
  using Instruction = ptx::Wgmma<kType, kType, kColumns, 0, kBack>;

 public:
  CLEAVE_DEVICE DirectSweep(const Params<C>& p, uint32_t smem)
      : p_(p),
        filters_(round_up(smem, kSweepAlignment)),
        lines_(filters_ + sweep_filter_bytes(C) + warpgroup_ * kStages * kLineBytes) {}

  CLEAVE_DEVICE void run() {
    uint32_t slice = 0, block = 0;
    p_.shape.blocks.divmod(blockIdx.x, slice, block);
    load_filters(block);
    ptx::copy_async_commit();
    const Stores stores(p_, block * C.tile.n + threadIdx.x % 4 * 8);
    ColumnShare share(p_.shape, slice * kSweepGroups + warpgroup_);
    bool met = false;  // for the filters
    while (share.has_more()) {
      uint32_t column = 0, line = 0, lines = 0;
      share.take(p_.shape, column, line, lines);
      go_down(column, line, lines, stores, met);
    }
    if (!met) meet();
  }

 private:
  using Sums = float[kSums];
  static constexpr uint32_t kNone = ~0u;

  /// Of 8 channels each, 32 apart.
  struct Stores {
    CLEAVE_DEVICE Stores(const Params<C>& p, uint32_t channel)
        : of{PixelStore<C>(p, min_of(channel, p.shape.channels - 8)),
             PixelStore<C>(p, min_of(channel + 32 * (kStores - 1), p.shape.channels - 8))} {}
    PixelStore<C> of[2];
  };

  /// Where a warpgroup is, and what its thread copies of a line there.
  struct Column : SweepColumn {
    uint32_t at[kOwn];  // bytes after the line's first pixel in the first plane
  };

  CLEAVE_DEVICE void meet() const {
    ptx::copy_async_wait<0>();
    ptx::fence_async_shared();
    __syncthreads();
  }

  CLEAVE_DEVICE void go_down(uint32_t number, uint32_t first, uint32_t made, const Stores& stores, bool& met) const {
    const Column column = find(number);
    const int32_t y0 = int32_t(first) - p_.shape.pad[0];
    const uint32_t gathered = made + kDown.taps - 1, steps = gathered * kDepth.taps;
    uint32_t sent = 0, to = lines_, stage = lines_;
    ptx::named_barrier_sync(1 + warpgroup_, kThreads);  // nobody reads the ring any more
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) send(column, y0, sent, steps, to);
    Sums sums = {};
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < gathered; ++i) {
      CLEAVE_UNROLL
      for (uint32_t d = 0; d < kDepth.taps; ++d) {
        ptx::copy_async_wait<int(kAhead) - 1>();
        ptx::fence_async_shared();
        if (met) {
          ptx::named_barrier_sync(1 + warpgroup_, kThreads);
        } else {
          meet();
          met = true;
        }
        send(column, y0, sent, steps, to);
        if (is_met(column, y0 + int32_t(i), d)) multiply(stage, d, sums);
        stage = stage + kLineBytes == lines_ + kStages * kLineBytes ? lines_ : stage + kLineBytes;
      }
      if (i + 1 >= kDown.taps) store(column, first + i + 1 - kDown.taps, sums, stores);
      CLEAVE_UNROLL
      for (uint32_t j = kSums; j > kMade; --j) sums[j - 1] = sums[j - 1 - kMade];
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kMade; ++j) sums[j] = 0;
    }
  }

  /// The gathered line that tap `d` down the depth has at `y`: whether there is one.
  CLEAVE_DEVICE bool is_met(const Column& column, int32_t y, uint32_t d) const {
    if (!is_inside(y, p_.shape.gathered[0])) return false;
    if constexpr (kDepth.taps == 1) return true;
    return is_inside(int32_t(column.z + d) - p_.shape.pad_depth, p_.shape.met_depth);
  }

  CLEAVE_DEVICE Column find(uint32_t number) const {
    Column column = {sweep_column(p_.shape, number), {}};
    const uint32_t apart = uint32_t(p_.a.stride * size_of(kType));
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t piece = threadIdx.x % kThreads + i * kThreads;
      const SweepPlace place = sweep_place(C, p_.shape, column, piece / (kParts * kPieces));
      const int32_t x = int32_t(place.x) - p_.shape.pad[1];
      const bool exists = piece < kLinePieces && place.beside < p_.shape.together &&
                          column.plane + place.beside < p_.shape.images && is_inside(x, p_.shape.gathered[1]);
      const uint32_t pixel = place.beside * p_.shape.gathered[0] * p_.shape.gathered[1] + uint32_t(x);
      column.at[i] = exists ? pixel * apart + piece % (kParts * kPieces) * 16 : kNone;
    }
    return column;
  }

  /// The next of a column's lines, plane by plane, into the ring; nothing, if it has no more, or nobody meets it.
  CLEAVE_DEVICE void send(const Column& column, int32_t y0, uint32_t& sent, uint32_t steps, uint32_t& to) const {
    const int32_t y = y0 + int32_t(sent / kDepth.taps);
    const uint32_t d = sent % kDepth.taps;
    if (sent++ < steps && is_met(column, y, d)) {
      const int64_t plane =
          kDepth.taps == 1 ? int64_t(column.plane)
                           : int64_t(column.image) * p_.shape.met_depth + int32_t(column.z + d) - p_.shape.pad_depth;
      const char* const from = static_cast<const char*>(p_.a.data) +
                               pixel_number(plane, y, 0, p_.shape.gathered) * p_.a.stride * size_of(kType);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kOwn; ++i) {
        const uint32_t piece = threadIdx.x % kThreads + i * kThreads, pixel = piece / (kParts * kPieces);
        const uint32_t part = piece % (kParts * kPieces) / kPieces;
        const bool exists = column.at[i] != kNone;
        if ((i + 1) * kThreads <= kLinePieces || piece < kLinePieces)
          ptx::copy_async<16>(to + part * sweep_part_bytes(C) + swizzle<kWidth>(pixel, piece % kPieces * 16),
                              from + (exists ? column.at[i] : 0), exists ? 16 : 0);
      }
    }
    ptx::copy_async_commit();
    to = to + kLineBytes == lines_ + kStages * kLineBytes ? lines_ : to + kLineBytes;
  }

  CLEAVE_DEVICE void multiply(uint32_t stage, uint32_t d, Sums& sums) const {
    ptx::wgmma_fence();
    CLEAVE_UNROLL
    for (uint32_t tap = 0; tap < kAcross.taps; ++tap) {
      CLEAVE_UNROLL
      for (uint32_t part = 0; part < kParts; ++part) {
        const uint32_t rows = stage + part * sweep_part_bytes(C) + tap * kWidth;
        const uint32_t filters = filters_ + ((d * kAcross.taps + tap) * kParts + part) * sweep_block_bytes(C);
        CLEAVE_UNROLL
        for (uint32_t step = 0; step < kSteps; ++step) {
          const uint64_t a = make_descriptor<Major::k, kWidth>(rows + step * 32, kRowsOfPart);
          const uint64_t b = make_descriptor<kMajor, kFilterLine>(
              filters + k_step_bytes<kMajor, kFilterLine>(step, kColumns, kType), kRowsOfPart);
          Instruction::mma(sums, a, b, 1);
        }
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    CLEAVE_UNROLL
    for (float& sum : sums) ptx::wgmma_pin(sum);
  }

  /// Line `y` of what is made, whose last gathered line has been multiplied.
  CLEAVE_DEVICE void store(const Column& column, uint32_t y, const Sums& sums, const Stores& stores) const {
    const float* const of_line = sums + kSums - kMade;
    CLEAVE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t row = threadIdx.x % kThreads / 32 * 16 + half * 8 + threadIdx.x % 32 / 4;
      const SweepPlace place = sweep_place(C, p_.shape, column, row);
      const uint32_t plane = column.plane + place.beside;
      const bool exists = place.x < p_.shape.made[1] && place.beside < p_.shape.together && plane < p_.shape.images;
      const uint32_t pixel = pixel_number(plane, y, place.x, p_.shape.made);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kStores; ++i) {
        uint32_t pairs[2][4];
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < 8; ++j)
          pairs[j / 4][j % 4] = __float_as_uint(of_line[(i * 4 + j % 4) * 4 + half * 2 + j / 4]);
        transpose_in_quad(pairs[0]);
        transpose_in_quad(pairs[1]);
        float own[8];
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < 8; ++j) own[j] = __uint_as_float(pairs[j % 2][j / 2]);
        const uint32_t channel = blockIdx.x % p_.shape.blocks.divisor * C.tile.n + i * 32 + threadIdx.x % 4 * 8;
        if (exists && channel < p_.shape.channels) stores.of[i](pixel, own);
      }
    }
  }

  /// Zeros past the last. Columns are the filters of the taps of a line, from above; data gradients meet them the other
  /// way round.
  CLEAVE_DEVICE void load_filters(uint32_t block) const {
    constexpr uint32_t kPiecesOfBlock = sweep_block_bytes(C) / 16;
    constexpr uint32_t kBlocks = kDepth.taps * kAcross.taps * kParts;
    const auto* const from = static_cast<const uint16_t*>(p_.b.data);
    const uint32_t channel0 = block * C.tile.n;
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < kBlocks * kPiecesOfBlock; i += kDirectThreads) {
      const uint32_t of = i / kPiecesOfBlock, piece = i % kPiecesOfBlock;
      const uint32_t part = of % kParts, tap = of / kParts % kAcross.taps, d = of / kParts / kAcross.taps;
      uint32_t to = filters_ + of * sweep_block_bytes(C), column = 0, k = 0;  // the piece's first
      if constexpr (kBack) {
        constexpr uint32_t kPiecesOfRow = kColumns / 8;
        k = piece / kPiecesOfRow;
        column = piece % kPiecesOfRow * 8;
        to += strip_offset<kFilterLine>(k, column * size_of(kType), kRowsOfPart);
      } else {
        column = piece / kPieces;
        k = piece % kPieces * 8;
        to += swizzle<kWidth>(column, k * size_of(kType));
      }
      const uint32_t line = column / C.tile.n, channel = channel0 + column % C.tile.n;
      const uint32_t gathered = part * kRowsOfPart + k;
      const uint32_t number = sweep_tap(C, d, line, tap);
      const uint64_t at = kBack ? gathered * uint64_t(p_.b.stride) + number * p_.shape.channels + channel
                                : channel * uint64_t(p_.b.stride) + number * C.tile.k + gathered;
      const bool exists = channel < p_.shape.channels;
      ptx::copy_async<16>(to, from + (exists ? at : 0), exists ? 16 : 0);
    }
  }

  const Params<C>& p_;
  const uint32_t warpgroup_ = __shfl_sync(0xffffffffu, threadIdx.x / kThreads, 0);
  const uint32_t filters_, lines_;
};

}  // namespace cleave
