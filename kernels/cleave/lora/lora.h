// Adapters of low rank: out += scale * (x @ a[g]^T) @ b[g]^T for the rows of each adapter g, in one launch. The hidden
// rows, of 8 to 64 numbers each, never leave the cluster that makes them.
//
// Roles      a cluster has a tile of rows of one adapter; a CTA of it has a part of the features, and then one of the
//            outputs, which its warps share in turn. Clusters beyond the last tile have nothing to do
// Shrinking  a lane loads x and a from memory as its mma's fragments. Sums of warps, then of CTAs, are added up in
// order
// Expanding  b, and what out holds, are on their way before the cluster meets: they wait for no sum
//
// No operand goes through shared memory, since each is used once by a CTA, or a few times by one warp. That asks for
// 16 bytes of neighbours in a lane where fragments have pairs. The order of K, of ranks and of columns in a tile is
// free, though, as long as both operands of a product have the same; see place_in_quad.
#pragma once

#include "cleave/lora/elements.h"
#include "cleave/lora/hidden_sum.h"
#include "cleave/lora/lora_config.h"
#include "cleave/lora/lora_params.h"
#include "cleave/lora/row_tile.h"
#include "cleave/ptx/cluster.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// Column `n` of mma tile `tile` among neighbours of which a lane of each quad has `of_lane`: lane t has columns 2 t
/// and 2 t + 1 of every tile, which are made neighbours of each other.
CLEAVE_HD constexpr uint32_t place_in_quad(uint32_t n, uint32_t tile, uint32_t of_lane) {
  return n / 2 * of_lane + tile * 2 + n % 2;
}

/// A warp, as a part of its cluster.
template <LoraConfig C>
class LoraWarp {
  static constexpr uint32_t kRankBlocks = C.rank / 8;          // mma tiles
  static constexpr uint32_t kRankStrip = min_of(C.rank, 32u);  // ranks that are neighbours in a quad
  static constexpr uint32_t kRankStrips = C.rank / kRankStrip;
  static constexpr uint32_t kRankWords = kRankStrip / 8;  // of a lane, and mma tiles of a strip
  static constexpr uint32_t kRowBlocks = C.rows / 16;
  static constexpr uint32_t kAhead = lora_strips_ahead(C);

 public:
  CLEAVE_DEVICE LoraWarp(const LoraParams& p, const RowTile& tile, uint32_t cta)
      : p_(p),
        tile_(tile),
        cta_(cta),
        warp_(threadIdx.x / 32 % C.warps),  // says how many there are: without it 64 ranks of 32 rows spill
        line_(threadIdx.x % 32 / 4),
        quad_(threadIdx.x % 4) {}

  /// This warp's part of x @ a^T, to `sums`.
  CLEAVE_DEVICE void shrink(float4* sums) const {
    const uint32_t begin = cta_ * p_.cta_features, end = min_of(begin + p_.cta_features, p_.features);
    const auto x = static_cast<const uint16_t*>(p_.x);
    const auto a = static_cast<const uint16_t*>(p_.a) + tile_.group * p_.a_adapter_stride;
    float made[kRowBlocks][kRankBlocks][4] = {};
    CLEAVE_NO_UNROLL
    for (uint32_t k = begin + warp_ * kAhead * kLoraStrip; k < end; k += C.warps * kAhead * kLoraStrip) {
      uint32_t of_x[kAhead][kRowBlocks][2][4], of_a[kAhead][kRankBlocks][4];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        const uint32_t at = k + i * kLoraStrip + quad_ * kLoraPiece;
        CLEAVE_UNROLL
        for (uint32_t block = 0; block < kRankBlocks; ++block) {
          const uint32_t rank = rank_of(line_, block);
          load_elements<C.vectors>(of_a[i][block], a + rank * p_.a_stride + at, elements_left(at, end, rank < p_.rank));
        }
        CLEAVE_UNROLL
        for (uint32_t block = 0; block < 2 * kRowBlocks; ++block) {
          const uint32_t row = tile_.begin + block * 8 + line_;
          load_elements<C.vectors>(of_x[i][block / 2][block % 2], x + row * p_.x_stride + at,
                                   elements_left(at, end, row < tile_.end));
        }
      }
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAhead * 2; ++i) {
        const uint32_t strip = i / 2, word = i % 2 * 2;
        CLEAVE_UNROLL
        for (uint32_t m = 0; m < kRowBlocks; ++m) {
          const auto& rows = of_x[strip][m];
          const uint32_t fragment[4] = {rows[0][word], rows[1][word], rows[0][word + 1], rows[1][word + 1]};
          CLEAVE_UNROLL
          for (uint32_t n = 0; n < kRankBlocks; ++n) {
            const auto& ranks = of_a[strip][n];
            ptx::mma<C.type, C.type>(made[m][n], fragment, ranks[word], ranks[word + 1]);
          }
        }
      }
    }
    float4* const to = sums + warp_ * lora_blocks(C) * 32 + threadIdx.x % 32;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kRowBlocks * kRankBlocks; ++i) {
      const float (&v)[4] = made[i / kRankBlocks][i % kRankBlocks];
      to[i * 32] = make_float4(v[0], v[1], v[2], v[3]);
    }
  }

  /// Outputs that a lane has in registers: strips of columns `first`, `first` + 1, ... of this warp.
  struct Columns {
    uint32_t of_b[4][kRankStrips][kRankWords];
    uint32_t of_out[kRowBlocks][2][4];
  };

  CLEAVE_DEVICE uint32_t first_column() const { return cta_ * p_.cta_outputs + warp_ * kAhead * kLoraStrip; }
  CLEAVE_DEVICE uint32_t end_column() const { return min_of((cta_ + 1) * p_.cta_outputs, p_.outputs); }

  CLEAVE_DEVICE void load(uint32_t column0, Columns& columns) const {
    const auto b = static_cast<const uint16_t*>(p_.b) + tile_.group * p_.b_adapter_stride;
    const uint32_t end = end_column();
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4 * kRankStrips; ++i) {
      const uint32_t column = column0 + place_in_quad(line_, i / kRankStrips, kLoraPiece);
      const uint32_t rank = i % kRankStrips * kRankStrip + quad_ * 2 * kRankWords;
      load_elements<C.vectors>(columns.of_b[i / kRankStrips][i % kRankStrips], b + column * p_.b_stride + rank,
                               elements_left(rank, p_.rank, column < end));
    }
    const uint32_t column = column0 + quad_ * kLoraPiece;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2 * kRowBlocks; ++i) {
      const uint32_t row = tile_.begin + i * 8 + line_;
      load_elements<C.vectors>(columns.of_out[i / 2][i % 2], out() + row * p_.out_stride + column,
                               elements_left(column, end, row < tile_.end));
    }
  }

  /// `hidden`: the tile's, rounded.
  CLEAVE_DEVICE void store(uint32_t column0, const Columns& columns, const uint2* hidden) const {
    const uint32_t column = column0 + quad_ * kLoraPiece;
    CLEAVE_UNROLL
    for (uint32_t m = 0; m < kRowBlocks; ++m) {
      float made[4][4] = {};
      CLEAVE_UNROLL
      for (uint32_t word = 0; word < kRankBlocks; word += 2) {
        const uint32_t strip = word / kRankWords, in_strip = word % kRankWords;
        const uint2* const from = hidden + (m * kRankBlocks + word) * 32 + threadIdx.x % 32;
        const uint2 low = from[0], high = C.rank > 8 ? from[32] : make_uint2(0, 0);
        const uint32_t fragment[4] = {low.x, low.y, high.x, high.y};
        CLEAVE_UNROLL
        for (uint32_t n = 0; n < 4; ++n) {
          const auto& ranks = columns.of_b[n][strip];
          ptx::mma<C.type, C.type>(made[n], fragment, ranks[in_strip],
                                   C.rank > 8 ? ranks[(in_strip + 1) % kRankWords] : 0);
        }
      }
      CLEAVE_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t row = tile_.begin + m * 16 + half * 8 + line_;
        uint32_t sums[4];
        CLEAVE_UNROLL
        for (uint32_t n = 0; n < 4; ++n) {
          const uint32_t before = columns.of_out[m][half][n];
          sums[n] = pack_pair(C.type, element_from_bits(C.type, before) + p_.scale * made[n][2 * half],
                              element_from_bits(C.type, before >> 16) + p_.scale * made[n][2 * half + 1]);
        }
        store_elements<C.vectors>(out() + row * p_.out_stride + column, sums,
                                  elements_left(column, end_column(), row < tile_.end));
      }
    }
  }

 private:
  CLEAVE_DEVICE static uint32_t rank_of(uint32_t n, uint32_t block) {
    return block / kRankWords * kRankStrip + place_in_quad(n, block % kRankWords, 2 * kRankWords);
  }
  CLEAVE_DEVICE uint16_t* out() const { return static_cast<uint16_t*>(p_.out); }

  const LoraParams& p_;
  const RowTile tile_;
  const uint32_t cta_, warp_;
  const uint32_t line_, quad_;  // row or column of an 8 x 8 matrix, and which pairs of it
};

template <LoraConfig C>
CLEAVE_DEVICE void lora(const LoraParams& p) {
  constexpr uint32_t kAhead = lora_strips_ahead(C);
  extern __shared__ __align__(16) uint8_t shared[];
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  const RowTile tile = find_row_tile(p.adapters, C.rows, blockIdx.x / C.cluster);
  if (tile.begin == tile.end) return;

  using Warp = LoraWarp<C>;
  const uint32_t cta = C.cluster > 1 ? ptx::cluster_rank() : 0;
  const Warp warp(p, tile, cta);
  const HiddenSum<C> sum(shared, cta);
  sum.start();
  warp.shrink(sum.sums());
  typename Warp::Columns columns[kAhead];
  const auto load = [&](uint32_t column) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) warp.load(column + i * kLoraStrip, columns[i]);
  };
  uint32_t column = warp.first_column();
  load(column);
  sum.run();
  while (column < warp.end_column()) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) warp.store(column + i * kLoraStrip, columns[i], sum.hidden());
    column += C.warps * kAhead * kLoraStrip;
    load(column);
  }
}

}  // namespace cleave
