// Convolutions of 16 to 192 channels, and their data gradients, by WGMMA, line by line down the images (sm_90a). A tile
// of few filters would have its pixels come from L2 once for each tap, which is what bounds it: all SMs share that.
// Here a line comes once, and a multiplication has a block of columns for each line that it is met by: what it makes of
// one line ends, the others go on.
//
// Roles      two warpgroups, each with lines of its own, that multiply in turn: 64 neighbouring pixels with all filters
//            of the CTA. What a line ended is stored while the next one is multiplied. One thread of a third warpgroup
//            has TMA bring filters and lines
// Operands   gathered lines, with what lies around them, in a ring of shared memory, swizzled; a tap along the line is
//            a row further on. All filters of the CTA, for the whole launch. Short lines of neighbouring images lie
//            beside each other
// Sums       float32, by gathered line from above, then in the order of planes and taps along the line
#pragma once

#include "cleave/config/direct_sweep.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/column_share.h"
#include "cleave/direct/sweep_lines.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/epilogue/transpose_in_quad.h"
#include "cleave/memory/descriptor.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/sync.h"
#include "cleave/ptx/tma.h"
#include "cleave/ptx/wgmma.h"
#include "cleave/tile/named_barriers.h"

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
  static constexpr uint32_t kFilterLine = sweep_filter_line(C), kThreads = kSweepThreads;
  static constexpr uint32_t kSums = kColumns / 2, kMade = C.tile.n / 2;  // of a thread; of a line
  static constexpr uint32_t kStores = C.tile.n / 32;                     // of 8 channels, of a row
  static_assert(kSweepGroups == 2 && size_of(kType) == 2 && kColumns % 16 == 0 && kColumns <= 256 &&
                C.tile.n % 32 == 0 && kParts * kWidth == C.tile.k * size_of(kType));
  static_assert(kDown.stride == 1 && kAcross.stride == 1 && kDown.dilation == 1 && kAcross.dilation == 1);
  using Instruction = ptx::Wgmma<kType, kType, kColumns, 0, kBack>;

 public:
  CLEAVE_DEVICE DirectSweep(const Params<C>& p, uint32_t smem) : p_(p), smem_(round_up(smem, kSweepAlignment)) {}

  CLEAVE_DEVICE void run() {
    uint32_t slice = 0, block = 0;
    p_.shape.blocks.divmod(blockIdx.x, slice, block);
    const uint32_t first = slice * kSweepGroups;
    const uint32_t turns = max_of(sweep_turns(C, p_.shape, first), sweep_turns(C, p_.shape, first + 1));
    if (turns == 0) return;
    const uint32_t warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kThreads, 0);
    if (threadIdx.x == 0) {
      for (uint32_t tap = 0; tap < sweep_taps(C); ++tap) ptx::mbarrier_init(filters_full(tap), 1);
      for (uint32_t i = 0; i < kSweepGroups; ++i) SweepRing<C>(smem_, i).init();
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (warpgroup == kSweepGroups) {
      ptx::registers_decrease<kSweepProducerRegisters>();
      if (threadIdx.x % kThreads < 32 && ptx::elect_lane()) produce(first, block);
    } else {
      ptx::registers_increase<kSweepConsumerRegisters>();
      consume(first + warpgroup, warpgroup, turns, block);
    }
  }

 private:
  using Sums = float[kSums];
  using Made = float[kMade];

  /// What a thread stores of a line: two pixels, 8 channels each, and as many 32 further on.
  struct Stores {
    CLEAVE_DEVICE Stores(const Params<C>& p, uint32_t first)
        : at{sweep_place(C, p.shape, row(0)), sweep_place(C, p.shape, row(1))},
          channel(first),
          of{PixelStore<C>(p, min_of(first, p.shape.channels - 8)),
             PixelStore<C>(p, min_of(first + 32 * (kStores - 1), p.shape.channels - 8))} {}

    CLEAVE_DEVICE static uint32_t row(uint32_t half) {
      return threadIdx.x % kThreads / 32 * 16 + half * 8 + threadIdx.x % 32 / 4;
    }

    const SweepPlace at[2];
    const uint32_t channel;
    const PixelStore<C> of[2];
  };

  CLEAVE_DEVICE uint32_t filters_full(uint32_t tap) const { return sweep_filters_full(C, smem_, tap); }

  /// By one thread. The first lines need not wait for all filters.
  CLEAVE_DEVICE void produce(uint32_t first, uint32_t block) const {
    SweepLines<C> of[kSweepGroups] = {{p_, first, 0, smem_}, {p_, first, 1, smem_}};
    load_filters(block, 0);
    bool more = of[0].send() | of[1].send();
    CLEAVE_NO_UNROLL
    for (uint32_t tap = 1; tap < sweep_taps(C); ++tap) load_filters(block, tap);
    CLEAVE_NO_UNROLL
    while (more) more = of[0].send() | of[1].send();
  }

  CLEAVE_DEVICE void consume(uint32_t number, uint32_t warpgroup, uint32_t turns, uint32_t block) const {
    SweepRing<C> ring(smem_, warpgroup);
    ColumnShare share(p_.shape, number);
    const Stores stores(p_, block * C.tile.n + threadIdx.x % 4 * 8);
    if (warpgroup == 1) pass_turn(warpgroup);
    while (share.has_more()) {
      uint32_t column_number = 0, first = 0, lines = 0;
      share.take(p_.shape, column_number, first, lines);
      const SweepColumn column = sweep_column(p_.shape, column_number);
      Sums sums = {};
      Made made = {};
      CLEAVE_NO_UNROLL
      for (uint32_t i = 0; i < lines + kDown.taps - 1; ++i) {
        CLEAVE_UNROLL
        for (uint32_t d = 0; d < kDepth.taps; ++d, --turns) {
          ring.wait_full();
          take_turn(warpgroup);
          multiply(ring.line(), d, sums);
          pass_turn(warpgroup);
          if (d == 0) store(column, i >= kDown.taps, first + i - kDown.taps, made, stores);
          ptx::wgmma_wait<0>();
          CLEAVE_UNROLL
          for (float& sum : sums) ptx::wgmma_pin(sum);
          ring.release();
          ring.advance();
        }
        end_line(sums, made);
      }
      store(column, true, first + lines - 1, made, stores);
    }
    for (; turns > 0; --turns) {  // the other one's
      take_turn(warpgroup);
      pass_turn(warpgroup);
    }
  }

  CLEAVE_DEVICE void multiply(uint32_t line, uint32_t d, Sums& sums) const {
    CLEAVE_UNROLL
    for (uint32_t across = 0; across < kAcross.taps; ++across) {
      const uint32_t tap = d * kAcross.taps + across;
      ptx::mbarrier_wait(filters_full(tap), 0);
      ptx::wgmma_fence();
      CLEAVE_UNROLL
      for (uint32_t part = 0; part < kParts; ++part) {
        const uint32_t rows = line + part * sweep_part_bytes(C) + across * kWidth;
        const uint32_t filters = smem_ + (tap * kParts + part) * sweep_block_bytes(C);
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
  }

  /// What the last block of columns holds is made; the others' are those of the line below.
  CLEAVE_DEVICE static void end_line(Sums& sums, Made& made) {
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kMade; ++j) made[j] = ptx::opaque_copy(sums[kSums - kMade + j]);
    CLEAVE_UNROLL
    for (uint32_t j = kSums; j > kMade; --j) sums[j - 1] = ptx::opaque_copy(sums[j - 1 - kMade]);
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kMade; ++j) sums[j] = ptx::opaque_copy(0);
  }

  /// Line `y` of what is made, if it `ends`.
  CLEAVE_DEVICE void store(const SweepColumn& column, bool ends, uint32_t y, const Made& made,
                           const Stores& stores) const {
    CLEAVE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t plane = column.plane + stores.at[half].beside, x = column.x0 + stores.at[half].x;
      const bool exists =
          ends && x < p_.shape.made[1] && stores.at[half].beside < p_.shape.together && plane < p_.shape.images;
      const uint32_t pixel = pixel_number(plane, y, x, p_.shape.made);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kStores; ++i) {
        uint32_t pairs[2][4];
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < 8; ++j)
          pairs[j / 4][j % 4] = __float_as_uint(made[(i * 4 + j % 4) * 4 + half * 2 + j / 4]);
        transpose_in_quad(pairs[0]);
        transpose_in_quad(pairs[1]);
        float own[8];
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < 8; ++j) own[j] = __uint_as_float(pairs[j % 2][j / 2]);
        if (exists && stores.channel + i * 32 < p_.shape.channels) stores.of[i](pixel, own);
      }
    }
  }

  /// By one thread: those of a tap along the line of one plane, a block of columns for each line that is met, from
  /// above; zeros past the last channel.
  CLEAVE_DEVICE void load_filters(uint32_t block, uint32_t tap) const {
    const int32_t channel = int32_t(block * C.tile.n);
    uint32_t to = smem_ + tap * kParts * sweep_block_bytes(C);
    ptx::mbarrier_arrive_expect(filters_full(tap), kParts * sweep_block_bytes(C));
    CLEAVE_NO_UNROLL
    for (uint32_t part = 0; part < kParts; ++part) {
      CLEAVE_NO_UNROLL
      for (uint32_t line = 0; line < kDown.taps; ++line, to += sweep_block_bytes(C) / kDown.taps) {
        const int32_t k = int32_t(part * kRowsOfPart);
        const int32_t at = int32_t(sweep_tap(C, tap / kAcross.taps, line, tap % kAcross.taps));
        ptx::tma_load(to, &p_.map_b, filters_full(tap), kBack ? channel : k, kBack ? k : channel, at,
                      ptx::CacheHint::normal);
      }
    }
  }

  const Params<C>& p_;
  const uint32_t smem_;
};

}  // namespace cleave
