// Everything about a GEMM kernel that is fixed when it is compiled.
//
// The planner fills a GemmConfig, the JIT prints it into the translation unit as a constant, and
// the kernel takes it as its one template argument. Sizes are not here: one kernel serves every
// shape.
#pragma once

#include "cleave/config/arch_traits.h"
#include "cleave/config/epilogue_params.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/core/either.h"
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
  bool in_turn = false;         // none, parallel: a CTA adds up slices one after the other, as others would together:
  uint32_t turns = 1;           // none: all of a tile's; parallel: so many, where a cluster would join them

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
  bool fast_load = true;        // Division
  bool fast_store = true;

  CLEAVE_HD friend constexpr bool operator==(const ConvConfig&, const ConvConfig&) = default;
};

/// pixels: multiply-adds, pixel by pixel. On tensor cores, windows: rows of the product are windows of the images'
/// lines (config/direct_windows.h); spread: they are gathered pixels, whose products with all taps meet afterwards
/// (config/direct_spread.h); shift: rows are pixels in shared memory, which taps shift (config/direct_shift.h); rows:
/// of one tap, they are pixels in registers (config/direct_rows.h).
enum class DirectMethod : uint8_t { pixels, windows, spread, shift, rows };

/// direct: a CTA makes tile.n channels; of a line, `strips` of tile.m pixels beside each other.
struct DirectConfig {
  DirectMethod method = DirectMethod::pixels;
  uint32_t vector = 1;  // channels of a thread; windows: of a pixel
  uint32_t group = 1;   // channels, and filters, of a group; shift: those that are made, and tile.k are gathered
  uint32_t strips = 1;
  uint32_t pixels = 0;  // that shared memory has room for: shift, in a stage; pixels: all (direct_pixels.h), or none
  DirectAxis height, width;

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

  CLEAVE_HD friend constexpr bool operator==(const StoreConfig&, const StoreConfig&) = default;
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

  CLEAVE_HD friend constexpr bool operator==(const GemmConfig&, const GemmConfig&) = default;
};

/// Elements of one 128-byte row of shared memory: the swizzle atom's width and the unit that
/// tile.k comes in.
CLEAVE_HD constexpr uint32_t atom_elements(DType t) {
  return 128 / size_of(t);
}

/// Whether A is a packed weight.
CLEAVE_HD constexpr bool has_weights(const GemmConfig& c) {
  return c.weights.format != WeightFormat::none;
}

/// Threads that hold accumulators.
CLEAVE_HD constexpr uint32_t math_threads(const GemmConfig& c) {
  return has_wgmma(c.family) ? (c.warps.pingpong ? 1 : c.warps.consumers) * 128 : c.warps.m * c.warps.n * 32;
}

/// Whether three warps of the Hopper kernel's last warpgroup copy a matrix, beside TMA.
CLEAVE_HD constexpr bool copies_narrow(const GemmConfig& c) {
  return c.operands.copied_a || c.operands.copied_b;
}

/// Whether a list names A's rows (B's columns).
CLEAVE_HD constexpr bool lists_a(const GemmConfig& c) {
  return c.operands.listed && c.schedule.grouping == Grouping::m;
}
CLEAVE_HD constexpr bool lists_b(const GemmConfig& c) {
  return c.operands.listed && c.schedule.grouping == Grouping::n;
}

/// Threads that copy operands, vector by vector.
CLEAVE_HD constexpr uint32_t copy_threads(const GemmConfig& c) {
  return has_tma(c.family) ? 128 : math_threads(c);
}

/// Whether threads of the producer warpgroup copy beside the lane that asks TMA: scales, of blocks or of weights, a
/// narrow operand, or one whose rows a list names.
CLEAVE_HD constexpr bool copies_beside(const GemmConfig& c) {
  return c.epilogue.scaling == Scaling::block || has_weights(c) || copies_narrow(c) || c.operands.listed;
}

/// How many do; packed weights have a warp of their own.
CLEAVE_HD constexpr uint32_t threads_beside(const GemmConfig& c) {
  return has_weights(c) ? 64 : 96;
}

/// Whether A's (or B's) rows are pixels of a tensor, each as often as a tap lands on it.
CLEAVE_HD constexpr bool gathers_a(const GemmConfig& c) {
  return gathers_a(c.conv.kind);
}
CLEAVE_HD constexpr bool gathers_b(const GemmConfig& c) {
  return c.conv.kind == Conv::wgrad;
}

/// Whether threads of the Hopper kernel put together vectors of 16 bytes of what is aligned to less.
CLEAVE_HD constexpr bool copies_unaligned(const GemmConfig& c) {
  return c.conv.gather && (gathers_a(c) ? c.operands.load_bytes_a : c.operands.load_bytes_b) < 16;
}

/// Whether B is a matrix as it lies in memory: filters that no class has its own taps of.
CLEAVE_HD constexpr bool has_plain_filters(const GemmConfig& c) {
  return c.conv.kind == Conv::fprop || c.conv.patches;
}

/// Whether threads of the Hopper kernel copy a convolution's filters, which TMA cannot read
/// as a matrix: rows of any length, or taps of a class without a gap, or those of all classes.
CLEAVE_HD constexpr bool copies_filters(const GemmConfig& c) {
  return c.conv.gather && (c.conv.kind == Conv::dgrad || (c.conv.kind == Conv::fprop && copies_unaligned(c)));
}

/// Whether K runs over taps and channels without a gap; else every tap begins a k block.
CLEAVE_HD constexpr bool flattens_taps(const GemmConfig& c) {
  return !has_tma(c.family) || (c.conv.gather && !c.conv.fuses_classes);
}

inline constexpr uint32_t kDirectThreads = 256;

/// direct: lines that a CTA has threads for.
CLEAVE_HD constexpr uint32_t direct_lines(const GemmConfig& c) {
  return kDirectThreads / (c.tile.n / c.direct.vector * c.direct.strips);
}

/// direct, wgrad: strips that a CTA's threads walk over at the same time, where each has `vector` of its `channels` and
/// one of `lines` of the filter's taps; sums that each of them has; and elements that a CTA makes.
CLEAVE_HD constexpr uint32_t direct_places(uint32_t channels, uint32_t vector, uint32_t lines) {
  return kDirectThreads / (channels / vector * lines);
}
CLEAVE_HD constexpr uint32_t direct_places(const GemmConfig& c) {
  return direct_places(c.tile.n, c.direct.vector, c.direct.height.taps);
}
CLEAVE_HD constexpr uint32_t direct_sums(const GemmConfig& c) {
  return c.direct.width.taps * c.direct.group * c.direct.vector;
}
CLEAVE_HD constexpr uint32_t direct_made(const GemmConfig& c) {
  const uint32_t taps = c.direct.height.taps * c.direct.width.taps;
  if (c.direct.method == DirectMethod::windows) return c.tile.n * taps * c.direct.vector;
  if (c.direct.method == DirectMethod::shift) return c.tile.n * taps * c.tile.k;
  return c.tile.n / c.direct.vector * c.direct.height.taps * direct_sums(c);
}

/// direct: from a tap's filters to the next one's in shared memory; a few floats more than there are, since neighbours
/// in global memory are taps.
CLEAVE_HD constexpr uint32_t direct_filter_row(const GemmConfig& c) {
  return c.tile.n + 4;
}

/// Threads of a CTA. Those of the streamed kernel all multiply, and math_threads() of them make sums of the parts.
CLEAVE_HD constexpr uint32_t cta_threads(const GemmConfig& c) {
  if (c.family == KernelFamily::direct) return kDirectThreads;
  if (c.family == KernelFamily::streamed) return c.warps.m * c.warps.k * 32;
  return has_tma(c.family) ? (c.warps.consumers + 1) * 128 : math_threads(c);
}

/// Registers of a thread of the Hopper kernel's producer warpgroup, once it has given up the rest.
CLEAVE_HD constexpr uint32_t producer_registers(const GemmConfig& c) {
  if (c.conv.gather) return copies_unaligned(c) ? 160 : 120;
  return copies_beside(c) || c.conv.kind != Conv::none ? 56 : 40;
}

/// And of its consumers: with several warpgroups of them the launch gives every thread an equal share,
/// and what the producer does not need is theirs.
CLEAVE_HD constexpr uint32_t consumer_registers(const GemmConfig& c) {
  if (c.warps.consumers == 1) return 255;
  const uint32_t equal = 65536 / cta_threads(c) / 8 * 8;
  return (equal + (equal - producer_registers(c)) / c.warps.consumers) / 8 * 8;
}

/// Accumulators that each math thread holds for one tile.
CLEAVE_HD constexpr uint32_t accumulators_per_thread(const GemmConfig& c) {
  return c.tile.m * c.tile.n / math_threads(c);
}

/// Columns of B that a stage has room for. TMA brings a B that is contiguous along N in strips of a swizzle atom, or of
/// half of one where the tile ends with half a strip: the last one whole, though the tile may have only the first of
/// its columns.
CLEAVE_HD constexpr uint32_t stage_columns(const GemmConfig& c) {
  const bool in_strips = has_tma(c.family) && c.operands.b_major == Major::mn && !c.operands.copied_b;
  const uint32_t atom = atom_elements(c.operands.a), strip = c.tile.n % atom == atom / 2 ? atom / 2 : atom;
  return in_strips ? round_up(c.tile.n, strip) : c.tile.n;
}

/// CTAs that an SM has registers for, at least.
CLEAVE_HD constexpr uint32_t resident_ctas(const GemmConfig& c) {
  if (c.direct.method == DirectMethod::spread) return 2;
  if (c.direct.method == DirectMethod::rows) {
    const uint32_t held = c.tile.m / 128 * (ceil_div(c.tile.k, 32u) * 8 + c.direct.vector * 4);  // pixels, and sums
    return held <= 40 ? 3 : 2;
  }
  if (c.conv.kind == Conv::wgrad && c.direct.method == DirectMethod::shift) return 2;
  if (c.direct.method == DirectMethod::pixels || c.conv.kind == Conv::wgrad) return c.direct.pixels > 0 ? 2 : 1;
  const bool has_classes = c.conv.kind == Conv::dgrad && c.direct.height.stride * c.direct.width.stride > 1;
  return accumulators_per_thread(c) <= 32 && !has_classes ? 3 : 2;
}

/// Whether a warpgroup multiplies two times 64 rows.
CLEAVE_HD constexpr bool has_two_waves(const GemmConfig& c) {
  return has_wgmma(c.family) && c.tile.m / (math_threads(c) / 128) > 64;
}

/// Whether two columns of the product make one of D. The tile's left half are then columns of the
/// gate projection, its right half those of the up projection that go with them.
CLEAVE_HD constexpr bool gated(const GemmConfig& c) {
  return c.epilogue.function.gated && !has_weights(c);
}
/// The same of two rows, eight apart, as a packed weight has them on A's place (memory/weight_layout.h). A block of a
/// thread's accumulators (tile/fragment.h) has both.
CLEAVE_HD constexpr bool gates_rows(const GemmConfig& c) {
  return c.epilogue.function.gated && has_weights(c);
}

/// What the epilogue reads: the inputs of its function and, after them, C.
CLEAVE_HD constexpr uint32_t epilogue_inputs(const GemmConfig& c) {
  return c.epilogue.function.inputs + c.epilogue.has_c;
}
CLEAVE_HD constexpr FunctionOperandConfig epilogue_input(const GemmConfig& c, uint32_t input) {
  const EpilogueConfig& e = c.epilogue;
  if (input < e.function.inputs) return e.function.input(input);
  return {InputShape::matrix, e.c, e.order, e.c_pairs};
}

/// Bytes of C that the epilogue loads at once.
CLEAVE_HD constexpr uint32_t load_bytes_c(const GemmConfig& c) {
  return size_of(c.epilogue.c) * (c.epilogue.c_pairs ? 2 : 1);
}

/// Whether an input of the epilogue is read for each element: a matrix, or, where a tile's row is several of D, what
/// those bring.
CLEAVE_HD constexpr bool is_by_element(const GemmConfig& c, uint32_t input) {
  const InputShape shape = epilogue_input(c, input).shape;
  return shape == InputShape::matrix || (c.conv.fuses_classes && shape == InputShape::column);
}

/// Such inputs among the first `among`, or of all.
CLEAVE_HD constexpr uint32_t inputs_by_element(const GemmConfig& c, uint32_t among) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < among; ++i) found += is_by_element(c, i);
  return found;
}
CLEAVE_HD constexpr uint32_t inputs_by_element(const GemmConfig& c) {
  return inputs_by_element(c, epilogue_inputs(c));
}

/// Rows of D that a tile covers, and columns.
CLEAVE_HD constexpr uint32_t output_rows(const GemmConfig& c) {
  return gates_rows(c) ? c.tile.m / 2 : c.tile.m;
}
CLEAVE_HD constexpr uint32_t output_columns(const GemmConfig& c) {
  return gated(c) ? c.tile.n / 2 : c.tile.n;
}

/// Columns of those 128 that share a scale of D's which one CTA has: all, or half, and its neighbour in a cluster has
/// the rest.
CLEAVE_HD constexpr uint32_t scale_columns(const GemmConfig& c) {
  return min_of(output_columns(c), kScaleBlock);
}
CLEAVE_HD constexpr bool pairs_scales(const GemmConfig& c) {
  return c.epilogue.has_scale_out && scale_columns(c) < kScaleBlock;
}

/// Blocks of accumulators (fragment.h) that are finished together: of the columns that share a scale of D's.
CLEAVE_HD constexpr uint32_t blocks_finished_together(const GemmConfig& c) {
  return c.epilogue.has_scale_out ? scale_columns(c) / 8 : 1;
}

/// Whether the halves of a tile's columns, the gate's and the up's, multiply one after the other: beside the promoted
/// sums of a tile that is wide enough for 128 columns of D there is no room for a part of both.
CLEAVE_HD constexpr bool multiplies_halves(const GemmConfig& c) {
  return c.scales.promote && gated(c) && c.tile.n == 256 &&
         (c.epilogue.has_scale_out || c.epilogue.scaling == Scaling::block);
}

/// CTAs that share loads.
CLEAVE_HD constexpr uint32_t sharers(const GemmConfig& c) {
  return c.cluster.multicast_m * c.cluster.multicast_n;
}

/// CTAs of one cluster (1: no cluster launch).
CLEAVE_HD constexpr uint32_t cluster_size(const GemmConfig& c) {
  return sharers(c) * c.cluster.k;
}

/// Elements of the grouped dimension that one step of the schedule covers (groups.h).
CLEAVE_HD constexpr uint32_t group_step(const GemmConfig& c) {
  switch (c.schedule.grouping) {
    case Grouping::m:
    case Grouping::classes:
      return output_rows(c) * c.cluster.multicast_m;
    case Grouping::n:
      return output_columns(c) * c.cluster.multicast_n;
    default:
      return c.tile.k;
  }
}

/// Whether TMA needs a map of A and one of B for each group.
CLEAVE_HD constexpr bool has_group_maps(const GemmConfig& c) {
  return has_tma(c.family) && c.schedule.apart;
}

/// Whether a tile's rows may end before those of D: at a group's end, or a line's.
CLEAVE_HD constexpr bool ends_rows_early(const GemmConfig& c) {
  return c.schedule.grouping == Grouping::m || c.schedule.grouping == Grouping::classes ||
         c.direct.method == DirectMethod::windows;
}

/// Whether neighbours among a tile's rows are none in D.
CLEAVE_HD constexpr bool scatters(const GemmConfig& c) {
  return c.schedule.grouping == Grouping::classes || c.conv.fuses_classes;
}

/// Whether what finishes a tile has no registers for the accumulators beside its own, though it has used them: what
/// looks for the largest of D, or has many slices' partials on their way.
CLEAVE_HD constexpr bool forgets_sums(const GemmConfig& c) {
  return c.epilogue.has_scale_out || c.epilogue.has_amax || c.schedule.split == SplitKMode::parallel;
}

/// Whether TMA sees A, B, or all of D as a matrix.
CLEAVE_HD constexpr bool has_map_a(const GemmConfig& c) {
  return has_tma(c.family) && !gathers_a(c) && !c.operands.copied_a && !lists_a(c) && !has_weights(c);
}
CLEAVE_HD constexpr bool has_map_b(const GemmConfig& c) {
  return has_tma(c.family) && !gathers_b(c) && !copies_filters(c) && !c.operands.copied_b && !lists_b(c);
}
CLEAVE_HD constexpr bool has_map_d(const GemmConfig& c) {
  return c.store.by_tma && !scatters(c);
}

/// Whether a role can find its first work tile before the launch ahead is done: groups' bounds lie in memory, which
/// must not be read before, and the walk of stream_k leaves the producer no register to keep a tile in.
CLEAVE_HD constexpr bool finds_tile_early(const GemmConfig& c) {
  return c.schedule.grouping == Grouping::none && c.schedule.split != SplitKMode::stream_k;
}

/// Whether the loads of static operands may begin before that.
CLEAVE_HD constexpr bool may_load_early(const GemmConfig& c) {
  return is_persistent(c.family) && finds_tile_early(c) && c.conv.kind == Conv::none;
}
CLEAVE_HD constexpr bool has_static_operand(const GemmConfig& c) {
  return c.operands.static_a || c.operands.static_b;
}
CLEAVE_HD constexpr bool loads_early(const GemmConfig& c) {
  return (c.operands.static_a && !has_weights(c)) || c.operands.static_b;
}

/// Whether each role waits for the launch ahead by itself, once it has found its first work tile: what that takes is
/// then under the other launch's end. Shared loads take the registers that the tile would be kept in, which only an
/// early load is worth.
CLEAVE_HD constexpr bool waits_late(const GemmConfig& c) {
  return finds_tile_early(c) && (sharers(c) == 1 || loads_early(c));
}

/// Whether D leaves through shared memory.
CLEAVE_HD constexpr bool stages_output(const GemmConfig& c) {
  return c.store.by_tma || c.store.run_bytes > 0;
}

/// Whether each column has a scale, in the epilogue.
CLEAVE_HD constexpr bool scales_columns(const GemmConfig& c) {
  return c.epilogue.scaling == Scaling::vector && c.epilogue.scaled_columns;
}

/// Values that each column brings to the epilogue: scale, bias, zero point, a function's inputs.
CLEAVE_HD constexpr uint32_t column_broadcast_values(const GemmConfig& c) {
  return scales_columns(c) + (c.epilogue.bias == Bias::row) + c.epilogue.has_zero +
         c.epilogue.function.count(InputShape::row);
}

/// What the tensor cores add up.
template <GemmConfig C>
using Part = Either<C.operands.a == DType::i8, int32_t, float>;

/// The type of an accumulator, and of a partial sum in the workspace: 32 bits in any case.
template <GemmConfig C>
using Sum = Either<C.operands.a == DType::i8 && !C.scales.promote, int32_t, float>;

/// All of a thread's accumulators.
template <GemmConfig C>
using Sums = Sum<C>[accumulators_per_thread(C)];

}  // namespace cleave
