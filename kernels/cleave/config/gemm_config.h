// Everything about a GEMM kernel that is fixed when it is compiled.
//
// The planner fills a GemmConfig, the JIT prints it into the translation unit as a constant, and
// the kernel takes it as its one template argument. Sizes are not here: one kernel serves every
// shape.
#pragma once

#include "cleave/config/arch_traits.h"
#include "cleave/config/epilogue_params.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/core/enums.h"
#include "cleave/core/math.h"

namespace cleave {

struct OperandConfig {
  DType a = DType::bf16;
  DType b = DType::bf16;  // differs from A's among the 8-bit floats only
  Major a_major = Major::k;
  Major b_major = Major::k;
  Precision precision = Precision::tf32;  // of float32 operands; others than tf32: portable alone
  // sm90: threads copy an operand of few rows (columns) that is contiguous along them (narrow_loader.h), one at
  // most.
  bool copied_a = false;
  bool copied_b = false;
  // Where M (N) is grouped: threads copy rows of A (columns of B), which a list names (list_params.h).
  bool listed = false;
  // Copies by threads: the widest that A's (B's) alignment allows: 16, 8, 4, 2 or 1 bytes.
  uint32_t load_bytes_a = 16;
  uint32_t load_bytes_b = 16;
  // Where the producer waits late: TMA may read it before the launch ahead is done.
  bool static_a = false;
  bool static_b = false;

  CLEAVE_HD friend constexpr bool operator==(const OperandConfig&, const OperandConfig&) = default;
};

/// Columns of a packed weight that share a scale, at most, as far as a kernel knows: those of a k block.
inline constexpr uint32_t kWidestWeightGroup = 128;

/// sm90, streamed: A, if it is a packed weight (memory/weight_layout.h), of which registers make elements of A's type.
struct WeightConfig {
  WeightFormat format = WeightFormat::none;
  uint32_t group = kWidestWeightGroup;  // of a k block's columns, those that share a scale: 16, 32, 64 or 128
  bool has_zero = false;

  CLEAVE_HD friend constexpr bool operator==(const WeightConfig&, const WeightConfig&) = default;
};

/// One tile, computed by one CTA. k is a multiple of a 128-byte row of the operands.
struct TileConfig {
  uint32_t m = 128;
  uint32_t n = 128;
  uint32_t k = 64;
  uint32_t stages = 4;

  CLEAVE_HD friend constexpr bool operator==(const TileConfig&, const TileConfig&) = default;
};

/// sm90: consumer warpgroups, each owning tile.m / consumers rows (cooperative) or a tile of its own
/// (ping-pong). portable: m x n warps share the tile. streamed, and weight gradients by windows or shifts: m warps
/// have rows of their own, k times, which cut K among them.
struct WarpConfig {
  uint32_t consumers = 2;
  bool pingpong = false;
  uint32_t m = 2;
  uint32_t n = 4;
  uint32_t k = 1;

  CLEAVE_HD friend constexpr bool operator==(const WarpConfig&, const WarpConfig&) = default;
};

/// A cluster's ranks are numbered k-major: rank = k_rank * sharers + share_rank.
struct ClusterConfig {
  // CTAs that share a B tile (multicast_m) or an A tile (multicast_n) by TMA multicast. At most one
  // is not 1.
  uint32_t multicast_m = 1;
  uint32_t multicast_n = 1;
  // cluster, parallel: slices of a tile that one cluster adds up in distributed shared memory.
  uint32_t k = 1;

  CLEAVE_HD friend constexpr bool operator==(const ClusterConfig&, const ClusterConfig&) = default;
};

struct ScheduleConfig {
  SplitKMode split = SplitKMode::none;
  Grouping grouping = Grouping::none;
  uint32_t group_capacity = 0;  // groups that there is shared memory for
  bool apart = false;           // groups of K: each group's operands are matrices by themselves
  // none, parallel: a CTA computes slices one after the other and adds them up, to the bits of CTAs side by side.
  bool in_turn = false;
  uint32_t turns = 1;  // parallel: so many, where a cluster would join them; none: 1, and all of a tile's are taken

  CLEAVE_HD friend constexpr bool operator==(const ScheduleConfig&, const ScheduleConfig&) = default;
};

struct ConvConfig {
  Conv kind = Conv::none;
  uint32_t axes = 2;            // 3 where there is depth
  uint32_t class_capacity = 0;  // classes that there is room for in the parameters
  bool fuses_classes = false;   // dgrad: all classes are columns of one (fused_classes.h)
  bool patches = false;         // those are the filters' columns as they lie, and one tap (fused_classes.h)
  bool gather = false;          // sm90: threads copy what TMA cannot gather (gather.h)
  bool batches_taps = false;    // wgrad by im2col: the batch are taps; else columns run over them
  bool turned = false;          // wgrad by im2col: filters are columns of D^T, and the gathered pixels A
  bool half_lines = false;      // im2col: pixels come in lines of 64 bytes, each of a tap of its own (loads.h)
  bool fast_load = true;        // Division
  bool fast_store = true;

  CLEAVE_HD friend constexpr bool operator==(const ConvConfig&, const ConvConfig&) = default;
};

/// pixels: multiply-adds, pixel by pixel. On tensor cores, windows: rows of the product are windows of the images'
/// lines (config/direct_windows.h); spread: they are gathered pixels, whose products with all taps meet afterwards
/// (config/direct_spread.h); shift: rows are pixels in shared memory, which taps shift (config/direct_shift.h); rows:
/// of one tap, they are pixels in registers (config/direct_rows.h). columns: multiply-adds, line by line down the
/// images (config/direct_columns.h). lines: weight gradients of few filters, by lines of pixels in registers
/// (config/direct_lines.h). staged: weight gradients by multiply-adds, from lines of pixels in shared memory
/// (config/direct_staged_wgrad.h). at_once: multiply-adds, of small images, whose pixels all come at the same time
/// (config/direct_at_once.h). sweep: WGMMA, line by line down the images, of which each meets all that it is met by at
/// once (config/direct_sweep.h).
enum class DirectMethod : uint8_t { pixels, windows, spread, shift, rows, columns, lines, staged, at_once, sweep };

/// direct: a CTA makes tile.n channels; of a line, `strips` of tile.m pixels beside each other.
struct DirectConfig {
  DirectMethod method = DirectMethod::pixels;
  uint32_t vector = 1;  // channels of a thread; windows: of a pixel
  uint32_t group = 1;   // channels, and filters, of a group; shift: those that are made, and tile.k are gathered
  uint32_t strips = 1;
  uint32_t pixels = 0;  // that shared memory has room for: shift, in a stage; staged, of a line; pixels: all, or none
  DirectAxis height, width;
  DirectAxis depth;  // spread, windows, lines

  CLEAVE_HD friend constexpr bool operator==(const DirectConfig&, const DirectConfig&) = default;
};

/// For sums that grow in float32 beside the tensor cores.
struct ScaleConfig {
  // Scaling::block: rows of A (columns of B) that share a scale, 1 or 128.
  uint32_t rows_a = 1;
  uint32_t rows_b = 1;
  bool promote = false;  // float32 takes over from the tensor cores' sums after every k block

  CLEAVE_HD friend constexpr bool operator==(const ScaleConfig&, const ScaleConfig&) = default;
};

struct StoreConfig {
  bool by_tma = true;   // sm90: D leaves through shared memory and TMA; needs 16-byte aligned rows
  uint32_t chunks = 2;  // of D per warpgroup in shared memory: one fills while others drain
  // sm90, fused classes: bytes of a run of D (fused_classes.h) that a thread stores at once, from shared memory;
  // direct: of a row (windows) or a pixel (spread), from registers. 0: pairs (windows).
  uint32_t run_bytes = 0;
  bool adds = false;  // sm90: sums that are added to float32 leave through shared memory, and L2 adds them

  CLEAVE_HD friend constexpr bool operator==(const StoreConfig&, const StoreConfig&) = default;
};

/// sm90, transposed: what each of several ranks has of a sum that all of them make is added up before the epilogue
/// (peers/strip.h).
struct AcrossConfig {
  uint32_t ranks = 1;
  DType partial = DType::bf16;  // what each rank's sums are rounded to: f16, bf16, f32
  uint32_t vectors = 0;         // strip_vectors

  CLEAVE_HD friend constexpr bool operator==(const AcrossConfig&, const AcrossConfig&) = default;
};

struct GemmConfig {
  KernelFamily family = KernelFamily::sm90;
  OperandConfig operands;
  WeightConfig weights;
  TileConfig tile;
  WarpConfig warps;
  ClusterConfig cluster;
  ScheduleConfig schedule;
  ConvConfig conv;
  DirectConfig direct;
  ScaleConfig scales;
  EpilogueConfig epilogue;
  StoreConfig store;
  AcrossConfig across;

  CLEAVE_HD friend constexpr bool operator==(const GemmConfig&, const GemmConfig&) = default;
};

/// Whether A is a packed weight.
CLEAVE_HD constexpr bool has_weights(const GemmConfig& c) {
  return c.weights.format != WeightFormat::none;
}

}  // namespace cleave
