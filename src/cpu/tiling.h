// How the CPU backend cuts a problem: tiles, clusters and workspace. It follows from the problem,
// the mode and the slices alone, never from the number of threads, so that results are bitwise the
// same however many there are.
#pragma once

#include <cstddef>
#include <vector>

#include "cleave/gemm.h"
#include "cleave/schedule/schedule.h"

namespace cleave::cpu {

// A packed tile of A or B and the tile's sums stay in a core's second-level cache.
inline constexpr uint32_t kMaxTileM = 120;  // whole micro-tiles
inline constexpr uint32_t kMaxTileN = 128;
inline constexpr uint32_t kMaxTileK = 256;
/// Columns of a tile whose columns of D share scales, under a gate.
inline constexpr uint32_t kWidestTileN = 2 * kScaleBlock;
static_assert(kMaxTileN == kScaleBlock);

/// Clusters of stream_k: what the tiles that do not fill a whole round are cut into.
inline constexpr uint32_t kStreamClusters = 16;

inline constexpr size_t kSumSize = 4;          ///< bytes of a sum: float32 or int32
inline constexpr size_t kPartialsOffset = 16;  ///< of the workspace; before them, whether it is used

struct Tiling {
  SplitKMode mode = SplitKMode::none;
  uint32_t tile_m = 1, tile_n = 1, tile_k = 1;
  uint32_t parts = 1;                  ///< of tile_n: 2 under a gate, its and the up columns of the same columns of D
  Grouping grouping = Grouping::none;  ///< the problem's, or classes
  std::vector<ConvClass> classes;      ///< of a convolution
  Schedule schedule;

  uint32_t depth = 0;          ///< elements of K that a tile adds up; of groups and classes, in the mean
  uint32_t tiles = 0;          ///< if all groups are equally large
  uint32_t reduce_chunks = 1;  ///< parallel: units of rows that a tile's reduction is dealt in
  size_t counters = 0;         ///< of a run: serial, one per tile; stream_k, one per cluster
  size_t partials = 0;         ///< of the workspace: tiles of sums, 4 bytes each

  uint32_t columns() const { return tile_n / parts; }  ///< of D, in a tile
  uint32_t tile_elements() const { return tile_m * tile_n; }
  size_t workspace_size() const { return partials == 0 ? 0 : kPartialsOffset + partials * tile_elements() * kSumSize; }

  ClassTable class_table() const { return {classes.data(), uint32_t(classes.size())}; }

  /// The row of D that is row `row` of the tile's class, if it has one.
  uint32_t row_of_d(const TileCoord& coord, uint32_t row) const {
    if (grouping != Grouping::classes) return row;
    const ConvClass& c = classes[coord.conv_class];
    return c.output_row(c.pixels.locate<kConvAxes, true>(row));
  }

  /// Elements of a step along the grouped dimension.
  uint32_t group_step() const {
    return grouping == Grouping::m ? tile_m : grouping == Grouping::n ? columns() : tile_k;
  }

  /// Walkers of the schedule of so many tiles. A thread works for many, one after the other; a
  /// cluster is bound to no thread.
  uint32_t clusters(uint32_t of_tiles) const {
    return mode == SplitKMode::stream_k ? kStreamClusters : of_tiles * schedule.clusters_per_tile;
  }
};

/// `mode` is not automatic and `slices` is at least 1; stream_k ignores `slices`.
Tiling make_tiling(const GemmProblem& problem, SplitKMode mode, uint32_t slices);

/// Where a tile lies.
struct TileArea {
  uint32_t row, column;    // of D, its first; rows of classes count the class's pixels
  uint32_t rows, columns;  // of D, as far as they lie in it and in the tile's group or class
  GroupRange k;            // what its product takes
};

TileArea area_of(const GemmProblem& problem, const Tiling& tiling, const TileCoord& coord);

}  // namespace cleave::cpu
