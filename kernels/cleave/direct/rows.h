// Convolutions of one tap and few channels, and their data gradients, by tensor cores (sm_80 and later): all that there
// is to do is reading pixels once, and writing others (config/direct_rows.h).
//
// Roles      a warp makes `tile.m` / 8 pixels at a time, a part of their channels after the other, and then the pixels
//            that lie as far behind as all warps of those channels reach. Warps never wait for each other
// Operands   pixels from global memory to mma.sync's registers, 16 bytes a thread; those of the next turn as soon as
//            the last part has been multiplied. Filters in shared memory, as mma.sync's registers want them
// Sums       float32, in an order of K of their own; each thread stores `direct.vector` channels of a pixel
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/ptx/load_global.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/ptx/shared.h"

namespace cleave {

template <GemmConfig C>
class DirectRows {
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kWarps = kDirectThreads / 32, kVector = C.direct.vector;
  static constexpr uint32_t kEights = rows_eights(C), kDepths = rows_depths(C);
  static constexpr uint32_t kParts = rows_parts(C), kBlocks = rows_blocks(C);
  static constexpr bool kBack = C.operands.b_major == Major::mn;
  static_assert(size_of(kType) == 2 && (kVector == 4 || kVector == 8) && C.tile.k % 8 == 0 && C.tile.n % 8 == 0);
  static_assert(kEights > 0 && kEights * 8 * kWarps == C.tile.m);

 public:
  CLEAVE_DEVICE DirectRows(const Params<C>& p, uint32_t filters) : p_(p), filters_(filters) {
    uint32_t turn, block;
    p.shape.blocks.divmod(blockIdx.x, turn, block);
    channel0_ = block * C.tile.n;
    first_ = (turn * kWarps + threadIdx.x / 32) * kEights * 8;
    step_ = gridDim.x / p.shape.blocks.divisor * C.tile.m;
  }

  CLEAVE_DEVICE void run() {
    uint32_t row = first_;
    Pixels own;
    CLEAVE_UNROLL
    for (uint32_t depth = 0; depth < kDepths; ++depth) load(row, depth, own);
    load_filters();
    __syncthreads();
    CLEAVE_NO_UNROLL
    for (; row < p_.size.m; row += step_) {
      CLEAVE_NO_UNROLL
      for (uint32_t part = 0; part + 1 < kParts; ++part) {
        make_part<false>(row, part, own);
        __syncwarp();  // two parts side by side would want too many registers
      }
      make_part<true>(row, kParts - 1, own);
    }
  }

 private:
  /// A thread's 8 channels of its pixels, which are 8 apart; and sums of blocks of channels by eights of pixels.
  using Pixels = uint32_t[kDepths][kEights][4];
  using Sums = float[kEights][kBlocks][4];

  /// Behind the last pixel there is the last one again: what is made of it is, too.
  CLEAVE_DEVICE uint32_t pixel(uint32_t row) const { return min_of(row, p_.size.m - 1); }

  CLEAVE_DEVICE void load(uint32_t row, uint32_t depth, Pixels& to) const {
    const uint32_t first = lane_ % 4 * 8, k = depth * kRowsDepth;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kEights; ++i) {
      const int64_t own = pixel(row + i * 8 + lane_ / 4) * p_.a.stride + first;
      const auto* const from = static_cast<const uint16_t*>(p_.a.data) + own;
      ptx::load_global_if<16>(to[depth][i], from + k, k + kRowsDepth <= C.tile.k || k + first < C.tile.k);
    }
  }

  /// By all threads: two neighbouring channels, and 8 elements of K, at a time; zeros past the last.
  CLEAVE_DEVICE void load_filters() const {
    constexpr uint32_t kCount = kParts * kDepths * kBlocks * 32, kAtOnce = kDepths > 6 ? 1 : 2;  // registers
    const auto* const filters = static_cast<const uint16_t*>(p_.b.data);
    CLEAVE_NO_UNROLL
    for (uint32_t begin = threadIdx.x; begin < kCount; begin += kAtOnce * kDirectThreads) {
      uint32_t raw[kAtOnce][8];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t at = begin + i * kDirectThreads, lane = at % 32, block = at / 32 % kBlocks;
        const uint32_t depth = at / 32 / kBlocks % kDepths, part = at / 32 / kBlocks / kDepths;
        const uint32_t k = depth * kRowsDepth + lane % 4 * 8;
        const uint32_t column = part * rows_part(C) + lane / 4 * kVector + block * 2, channel = channel0_ + column;
        const bool exists = part < kParts && column < C.tile.n && k < C.tile.k;
        if constexpr (kBack) {
          CLEAVE_UNROLL
          for (uint32_t j = 0; j < 8; ++j)
            ptx::load_global_if<4>(&raw[i][j], filters + (k + j) * p_.b.stride + channel, exists);
        } else {
          CLEAVE_UNROLL
          for (uint32_t j = 0; j < 2; ++j)
            ptx::load_global_if<16>(&raw[i][j * 4], filters + (channel + j) * p_.b.stride + k, exists);
        }
      }
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t at = begin + i * kDirectThreads;
        if (at >= kCount) break;
        CLEAVE_UNROLL
        for (uint32_t step = 0; step < 2; ++step) {
          uint32_t own[4];
          CLEAVE_UNROLL
          for (uint32_t j = 0; j < 4; ++j) own[j] = pair(raw[i], step * 2 + j / 2, j % 2);
          ptx::store_shared_128(filters_ + ((at / 32 * 2 + step) * 32 + at % 32) * 16, own);
        }
      }
    }
  }

  /// Elements 2 `nth` and 2 `nth` + 1 of K of the first channel, or the second, that a thread has loaded.
  CLEAVE_DEVICE static uint32_t pair(const uint32_t (&raw)[8], uint32_t nth, uint32_t channel) {
    if constexpr (!kBack) return raw[channel * 4 + nth];
    return __byte_perm(raw[nth * 2], raw[nth * 2 + 1], channel == 0 ? 0x5410 : 0x7632);
  }

  /// The last one has no use for the pixels any more.
  template <bool Last>
  CLEAVE_DEVICE void make_part(uint32_t row, uint32_t part, Pixels& own) const {
    Sums sums = {};
    CLEAVE_UNROLL
    for (uint32_t depth = 0; depth < kDepths; ++depth) {
      multiply(part, depth, own, sums);
      if constexpr (Last) load(row + step_, depth, own);
    }
    const uint32_t column = part * rows_part(C) + lane_ / 4 * kVector;
    if (!Last || kParts * rows_part(C) == C.tile.n || column < C.tile.n) store(row, channel0_ + column, sums);
  }

  CLEAVE_DEVICE void multiply(uint32_t part, uint32_t depth, const Pixels& own, Sums& sums) const {
    CLEAVE_UNROLL
    for (uint32_t block = 0; block < kBlocks; ++block) {
      CLEAVE_UNROLL
      for (uint32_t step = 0; step < 2; ++step) {
        uint32_t filters[4];
        const uint32_t at = ((part * kDepths + depth) * kBlocks + block) * 2 + step;
        ptx::load_shared_128(filters_ + (at * 32 + lane_) * 16, filters);
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kEights; ++i)
          ptx::mma<kType, kType>(sums[i][block], filters, own[depth][i][step * 2], own[depth][i][step * 2 + 1]);
      }
    }
  }

  CLEAVE_DEVICE void store(uint32_t row, uint32_t channel, const Sums& sums) const {
    // What is read may be where D is written: once.
    constexpr bool kReads = C.epilogue.has_c || C.epilogue.function.given;
    const PixelStore<C> store_pixel(p_, channel);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kEights; ++i) {
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < 2; ++j) {
        float values[kVector];
        CLEAVE_UNROLL
        for (uint32_t v = 0; v < kVector; ++v) values[v] = sums[i][v / 2][v % 2 * 2 + j];
        const uint32_t own = row + i * 8 + lane_ % 4 * 2 + j;
        if (!kReads || own < p_.size.m) store_pixel(pixel(own), values);
      }
    }
  }

  const Params<C>& p_;
  const uint32_t filters_, lane_ = threadIdx.x % 32;
  uint32_t channel0_, first_, step_;
};

}  // namespace cleave
