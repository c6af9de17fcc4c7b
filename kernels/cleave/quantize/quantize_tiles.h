// Quantises squares of 128 by 128, one per block: with one scale each, or with one for each row of
// the square; and, if asked, their transposes from the same read, then with one scale for each
// column. Grouped, the transpose is padded: every group begins a new square, and what is not a
// group's is zero.
//
// Roles      all threads load, convert and store; each holds some columns of 4 or more rows
// Timeline   load, reduce, store q; the transpose turns in shared memory, and leaves from there
// Transpose  shared memory holds it column by column, 128 bytes each; the 16-byte pieces of a
//            column are permuted, so that a warp's words spread over the banks
#pragma once

#include "cleave/ptx/sync.h"
#include "cleave/quantize/access.h"
#include "cleave/quantize/reduce_reach.h"

namespace cleave {

inline constexpr uint32_t kTileSide = kScaleBlock;

/// A CTA's square, and the part of it that a thread holds.
template <QuantizeConfig C>
struct QuantizeTile {
  static constexpr uint32_t kLanes = kTileSide / C.width;               // threads along a row
  static constexpr uint32_t kRows = kTileSide * kLanes / kTileThreads;  // of a thread, neighbours
  static_assert(kRows % 4 == 0 && kRows * C.width == kHeldValues);

  uint32_t tile_row, tile_col;
  Band band;        // of x
  uint32_t rows_t;  // of the square that are columns of the transpose
  const uint32_t row = threadIdx.x / kLanes * kRows, col = threadIdx.x % kLanes * C.width;
  float held[kRows][C.width] = {};  // zeros reach nowhere

  CLEAVE_DEVICE explicit QuantizeTile(const QuantizeParams& p) {
    p.groups_per_row.divmod(p.groups - 1 - blockIdx.x, tile_row, tile_col);
    if constexpr (C.grouped) {
      band = p.band_table[tile_row];
      rows_t = tile_row < p.padded_bands ? kTileSide : 0;
    } else {
      band = band_from(0, p.rows, tile_row, true);
      rows_t = band.rows;
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      if (inside(p, row + i, col)) load(p, band.row + row + i, col0() + col, held[i]);
    }
    if constexpr (C.norm != Norm::none) normalize(p);
  }

  CLEAVE_DEVICE uint32_t col0() const { return tile_col * kTileSide; }
  CLEAVE_DEVICE bool inside(const QuantizeParams& p, uint32_t r, uint32_t c) const {
    return r < band.rows && col0() + c < p.cols;
  }
  CLEAVE_DEVICE bool inside_transpose(const QuantizeParams& p, uint32_t r, uint32_t c) const {
    return r < rows_t && col0() + c < p.cols;
  }

 private:
  CLEAVE_DEVICE static void load(const QuantizeParams& p, uint32_t row, int64_t col, float (&values)[C.width]) {
    if constexpr (C.norm == Norm::none) {
      load_values<C>(p, row, col, values);
    } else {
      const auto summed = load_summed<C>(p, row, col);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < C.width; ++i) values[i] = summed[i];
    }
  }

  /// What is held, by the statistics that were found of its rows. All rows have the same columns: their weights are
  /// loaded once.
  CLEAVE_DEVICE void normalize(const QuantizeParams& p) {
    if (col0() + col >= p.cols) return;
    Elements<C.weight, C.width> weight, bias;
    if constexpr (C.has_weight) weight = weight.load(p.weight, col0() + col);
    if constexpr (C.has_bias) bias = bias.load(p.bias, col0() + col);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      if (row + i >= band.rows) continue;
      const uint32_t x_row = band.row + row + i;
      const RowStatistics statistics = p.statistics[x_row];
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < C.width; ++j) {
        held[i][j] = normalized(statistics, held[i][j], C.has_weight ? weight[j] + p.weight_offset : 1.0f,
                                C.has_bias ? bias[j] : 0.0f);
      }
      if constexpr (C.has_normed)
        Elements<C.x, C.width>::of(held[i]).store(p.normed, x_row * p.normed_stride + col0() + col);
    }
    if constexpr (C.has_smooth) {
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < C.width; ++j) {
        const float smooth = p.smooth[col0() + col + j];
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kRows; ++i) held[i][j] /= smooth;
      }
    }
  }
};

/// 1 / scale by row and by column of the square.
struct TileInverses {
  float of_row[kTileSide], of_col[kTileSide];
};

/// One scale for the square.
template <QuantizeConfig C>
CLEAVE_DEVICE void find_one_scale(const QuantizeParams& p, const QuantizeTile<C>& tile, TileInverses& inverses) {
  Reach reach;
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < QuantizeTile<C>::kRows; ++i) {
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < C.width; ++j) reach.add(true, tile.held[i][j]);
  }
  const Quantizer quantizer = quantizer_for(C.q, true, C.ue8m0, reduce_cta(true, reach));
  if (threadIdx.x < kTileSide) {
    inverses.of_row[threadIdx.x] = inverses.of_col[threadIdx.x] = quantizer.inverse;
  }
  if (threadIdx.x == 0) {
    p.scale.at(tile.tile_row, tile.tile_col) = quantizer.scale;
    if constexpr (C.width_t != 0) p.scale_t.at(tile.tile_col, tile.tile_row) = quantizer.scale;
  }
}

/// How far the rows of a square reach, and its columns within the rows that a warp holds.
template <QuantizeConfig C>
class TileReach {
 public:
  /// By all threads. What it finds is there for all after a barrier.
  CLEAVE_DEVICE void find(const QuantizeTile<C>& tile) {
    if constexpr (kLanes > 32) {
      if (threadIdx.x < kTileSide) of_row_[threadIdx.x] = 0;
      __syncthreads();
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < QuantizeTile<C>::kRows; ++i) {
      Reach reach;
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < C.width; ++j) reach.add(true, tile.held[i][j]);
      const int32_t widest = max_over_lanes<min_of(kLanes, 32u)>(reach.above);
      if (threadIdx.x % min_of(kLanes, 32u) != 0) continue;
      if constexpr (kLanes > 32) {
        atomicMax(&of_row_[tile.row + i], widest);
      } else {
        of_row_[tile.row + i] = widest;
      }
    }
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < C.width; ++j) {
      Reach reach;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < QuantizeTile<C>::kRows; ++i) reach.add(true, tile.held[i][j]);
      int32_t widest = reach.above;
      CLEAVE_UNROLL
      for (uint32_t distance = kLanes; distance < 32; distance *= 2)
        widest = max_of(widest, __shfl_xor_sync(0xffffffffu, widest, distance));
      if (threadIdx.x % 32 < kLanes) of_col_[threadIdx.x / max_of(kLanes, 32u)][place(tile.col + j)] = widest;
    }
  }

  CLEAVE_DEVICE int32_t of_row(uint32_t row) const { return of_row_[row]; }
  CLEAVE_DEVICE int32_t of_col(uint32_t col) const {
    int32_t widest = 0;
    CLEAVE_UNROLL
    for (uint32_t strip = 0; strip < kStrips; ++strip) widest = max_of(widest, of_col_[strip][place(col)]);
    return widest;
  }

 private:
  static constexpr uint32_t kLanes = QuantizeTile<C>::kLanes;
  static constexpr uint32_t kStrips = kTileThreads / max_of(kLanes, 32u);  // rows of a warp, or of some
  static constexpr uint32_t kSkew = 32 / C.width;

  /// Where neither lanes' columns, C.width apart, nor neighbours share a bank.
  CLEAVE_DEVICE static uint32_t place(uint32_t col) { return col % C.width * (kLanes + kSkew) + col / C.width; }

  int32_t of_row_[kTileSide], of_col_[kStrips][C.width * (kLanes + kSkew)];
};

/// One scale for each row, and one for each column.
template <QuantizeConfig C>
CLEAVE_DEVICE void find_scales(const QuantizeParams& p, const QuantizeTile<C>& tile, TileInverses& inverses) {
  __shared__ TileReach<C> reach;
  reach.find(tile);
  __syncthreads();

  const uint32_t i = threadIdx.x % kTileSide;
  if (threadIdx.x < kTileSide) {
    const Quantizer quantizer = quantizer_for(C.q, true, C.ue8m0, {reach.of_row(i), 0});
    inverses.of_row[i] = quantizer.inverse;
    if (tile.inside(p, i, 0)) p.scale.at(tile.band.row + i, tile.tile_col) = quantizer.scale;
  } else if (threadIdx.x < 2 * kTileSide) {
    const Quantizer quantizer = quantizer_for(C.q, true, C.ue8m0, {tile.band.in_group ? reach.of_col(i) : 0, 0});
    inverses.of_col[i] = quantizer.inverse;
    if (tile.inside_transpose(p, 0, i)) p.scale_t.at(tile.col0() + i, tile.tile_row) = quantizer.scale;
  }
}

/// Byte of (row, col) in shared memory.
CLEAVE_DEVICE uint32_t turned(uint32_t row, uint32_t col) {
  return col * kTileSide + (row ^ (col / 8 % 8 * 16));
}

template <QuantizeConfig C>
CLEAVE_DEVICE void store_transpose(const QuantizeParams& p, const QuantizeTile<C>& tile, const TileInverses& inverses) {
  alignas(16) __shared__ uint8_t bytes[kTileSide * kTileSide];
  CLEAVE_UNROLL
  for (uint32_t j = 0; j < C.width; ++j) {
    const Quantizer quantizer{.inverse = inverses.of_col[tile.col + j]};
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < QuantizeTile<C>::kRows; i += 4) {
      float column[4];
      CLEAVE_UNROLL
      for (uint32_t k = 0; k < 4; ++k) column[k] = tile.band.in_group ? tile.held[i + k][j] : 0.0f;
      store_packed(bytes + turned(tile.row + i, tile.col + j), packed_values<C>(quantizer, column));
    }
  }
  __syncthreads();
  for (uint32_t at = threadIdx.x * C.width_t; at < kTileSide * kTileSide; at += kTileThreads * C.width_t) {
    const uint32_t row = at % kTileSide, col = at / kTileSide;
    if (!tile.inside_transpose(p, row, col)) continue;
    const auto to = static_cast<char*>(p.q_t) + (tile.col0() + col) * p.q_t_stride + tile.tile_row * kTileSide + row;
    store_packed(to, load_packed<C.width_t>(bytes + turned(row, col)));
  }
}

template <QuantizeConfig C>
CLEAVE_DEVICE void quantize_tiles(const QuantizeParams& p) {
  static_assert(!C.given_scale && C.symmetric);
  ptx::launch_dependents();
  ptx::grid_dependency_wait();

  const QuantizeTile<C> tile(p);
  __shared__ TileInverses inverses;
  if constexpr (C.square) {
    find_one_scale<C>(p, tile, inverses);
  } else {
    find_scales<C>(p, tile, inverses);
  }
  __syncthreads();
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < QuantizeTile<C>::kRows; ++i) {
    if (tile.inside(p, tile.row + i, tile.col)) {
      store_values<C>(p, tile.band.row + tile.row + i, tile.col0() + tile.col,
                      {.inverse = inverses.of_row[tile.row + i]}, tile.held[i]);
    }
  }
  if constexpr (C.width_t != 0) store_transpose<C>(p, tile, inverses);
}

}  // namespace cleave
