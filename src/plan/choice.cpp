#include "plan/choice.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cleave/config/scale_lines.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/store_chunk.h"
#include "cleave/schedule/groups.h"
#include "launch/gemm_grid.h"
#include "launch/limits.h"
#include "plan/conv_choice.h"
#include "problem/conv_classes.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostStages = 12;
constexpr uint32_t kLeastStages = 2;
constexpr uint32_t kMostClusterBlocks = 16;  // Hopper's limit, beyond the portable 8

/// The dimension of A ([m, k]) or B^T ([n, k]) that is contiguous. Both are if the other has one
/// element.
Major major_of(int64_t stride_k, int64_t size_k, int64_t stride_other, int64_t size_other) {
  if (size_other == 1 && stride_k == 1) return Major::k;
  if (size_k == 1 && stride_other == 1) return Major::mn;
  return stride_k == 1 || size_k == 1 ? Major::k : Major::mn;
}

/// What the kernels see of a stored matrix.
struct Operand {
  Major major;
  int64_t stride;       // of the dimension that is not contiguous, where it matters
  uint32_t alignment;   // bytes that every row's address is a multiple of, at most 16
  uint32_t load_bytes;  // the same of where tiles begin: groups begin anywhere
};

uint32_t common_alignment(uint32_t pointer, DType type, int64_t stride, int64_t batch_stride) {
  uint32_t bytes = std::min(pointer, 16u);
  while (bytes > size_of(type) &&
         (stride * size_of(type) % bytes != 0 || batch_stride * size_of(type) % bytes != 0)) {
    bytes /= 2;
  }
  return bytes;
}

/// Bytes that the addresses at which groups begin are multiples of, along a contiguous dimension.
uint32_t group_alignment(const GroupLayout& groups, DType type) {
  const uint64_t bytes = (is_spaced(groups.bounds) ? uint64_t(groups.spacing) : 1) * size_of(type);
  return uint32_t(std::min<uint64_t>(bytes & -bytes, 16));
}

/// `other`: the grouping that cuts the operand's dimension beside K.
Operand operand(const MatrixLayout& layout, int64_t stride_k, int64_t size_k, int64_t stride_other,
                int64_t size_other, int64_t batch, const GroupLayout& groups, Grouping other) {
  Operand o{major_of(stride_k, size_k, stride_other, size_other), 0, 0, 0};
  const bool strided_matters = o.major == Major::k ? size_other > 1 : size_k > 1;
  o.stride = strided_matters ? (o.major == Major::k ? stride_other : stride_k) : 0;
  o.alignment = common_alignment(layout.alignment, layout.dtype, o.stride,
                                 batch > 1 ? layout.stride_batch : 0);
  const Grouping contiguous = o.major == Major::k ? Grouping::k : other;
  o.load_bytes = contiguous == groups.dimension
                     ? std::min(o.alignment, group_alignment(groups, layout.dtype))
                     : o.alignment;
  return o;
}

/// The operands of a convolution. Their order is given, and each tap's channels begin a line.
std::pair<Operand, Operand> conv_operands(const GemmProblem& p) {
  const auto make = [&](const MatrixLayout& layout, Major major, int64_t stride, bool is_a) {
    const int64_t batch_stride = p.batch > 1 ? layout.stride_batch : 0;
    Operand o{major, stride, common_alignment(layout.alignment, layout.dtype, stride, batch_stride),
              0};
    o.load_bytes = std::min(o.alignment, line_alignment(p.conv, layout, is_a));
    return o;
  };
  const bool forward = p.conv.kind == Conv::fprop;
  const bool to_filters = p.conv.kind == Conv::wgrad;
  return {
      make(p.a, to_filters ? Major::mn : Major::k, to_filters ? p.a.stride_col : p.a.stride_row,
           true),
      make(p.b, forward ? Major::k : Major::mn, forward ? p.b.stride_col : p.b.stride_row, false)};
}

/// Bytes that D's lines, and their ends, are at multiples of: TMA clips its stores to
/// whole 16 bytes.
uint32_t output_alignment(const MatrixLayout& layout, Order order, const GemmProblem& p) {
  const bool strided_matters = (order == Order::row ? p.m : p.n) > 1;
  const int64_t stride =
      strided_matters ? (order == Order::row ? layout.stride_row : layout.stride_col) : 0;
  const int64_t across = order == Order::row ? p.n : p.m;
  return std::min(common_alignment(layout.alignment, layout.dtype, stride,
                                   p.batch > 1 ? layout.stride_batch : 0),
                  common_alignment(16, layout.dtype, across, 0));
}

/// Whether a Hopper consumer keeps everything in registers. Where it does not, the compiler said so:
/// CI compiles every configuration and fails on a spill.
bool registers_suffice(const GemmConfig& c) {
  if (c.scales.promote && promotion_registers(c, 1) > spare_registers(c)) return false;
  const bool by_block = c.epilogue.scaling == Scaling::block;
  // Two waves of accumulators leave nothing for an error function beside C.
  const bool two_waves = c.tile.m / (math_threads(c) / 128) > 64;
  if (two_waves && c.epilogue.has_c && c.epilogue.activation == Activation::gelu_erf) return false;
  // Nor does a part of 96 sums with scales of its own for a walk through groups of rows.
  const bool ragged = c.schedule.grouping == Grouping::m || c.schedule.grouping == Grouping::n;
  if (ragged && by_block && c.tile.n > 176) return false;
  // Nor do 128 accumulators and a walk through groups of K for C, or for shares of slices.
  const bool joins =
      c.schedule.split == SplitKMode::serial || c.schedule.split == SplitKMode::parallel;
  const bool crowded = c.schedule.grouping == Grouping::k && accumulators_per_thread(c) >= 128;
  return !crowded || !(joins || (c.epilogue.has_c && sharers(c) > 1));
}

/// Fills the parts of the configuration that the tile's shape decides; false if the kernel has no
/// such tile.
bool shape_tile(const Spec& s, const GemmProblem& p, const ConvGeometry& geometry, const Operand& a,
                const Operand& b, const DeviceInfo& device, GemmConfig& c) {
  const uint32_t atom = atom_elements(c.operands.a);
  c.tile.m = s.tile_m;
  c.tile.n = s.tile_n;
  c.tile.k = atom;
  // Scales are looked up from a tile's first row on.
  if (c.epilogue.scaling == Scaling::block && s.tile_m % c.scales.rows_a != 0 &&
      c.scales.rows_a % s.tile_m != 0)
    return false;
  // What a tile has of B lies in one place, or, under a gate, in two.
  const uint32_t piece = output_columns(c);
  if (gated(c) &&
      (s.transposed || c.cluster.k > 1 || c.epilogue.scaling == Scaling::block || piece % 16))
    return false;
  // An operand that is contiguous along M or N comes in strips of one swizzle atom, dealt whole to
  // multicast partners.
  if (b.major == Major::mn && piece % (atom * s.multicast_m) != 0) return false;
  if (a.major == Major::mn && s.tile_m % (atom * s.multicast_n) != 0) return false;
  if (s.family == KernelFamily::portable) {
    // mma.sync has 8-bit floats since sm_89.
    if (is_fp8(c.operands.a) && device.compute_capability < 89) return false;
    // A gate and its up meet in one warp.
    c.warps.n = gated(c) ? 1 : s.tile_m == 64 || s.tile_n == 64 ? 2 : 4;
    c.warps.m = (s.tile_m == 64 ? 4 : 8) / c.warps.n;
    c.store.by_tma = false;
    c.operands.load_bytes_a = a.load_bytes;
    c.operands.load_bytes_b = b.load_bytes;
    c.cluster.multicast_m = s.multicast_m;
    c.cluster.multicast_n = s.multicast_n;
    if (c.conv.kind != Conv::none && !shape_conv(p, geometry, c)) return false;
    // Gathered pieces come late: more of them are kept on their way.
    const uint32_t most = c.conv.kind == Conv::none ? 3 : 5;
    c = with_stages(c, most, uint32_t(device.shared_memory_per_block));
    return c.tile.stages >= kLeastStages && sharers(c) == 1 && !s.pingpong;
  }

  c.warps.pingpong = s.pingpong;
  c.warps.consumers = s.tile_m == 192 ? 3 : s.pingpong || s.tile_m >= 128 ? 2 : 1;
  if (c.warps.consumers == 3 && !c.scales.promote)
    return false;  // others keep more sums in each thread
  c.cluster.multicast_m = s.multicast_m;
  c.cluster.multicast_n = s.multicast_n;
  if (device.compute_capability / 10 != 9) return false;
  if (a.load_bytes < 16 || b.load_bytes < 16) {
    // Threads put together what they gather of 16-bit elements, and fprop's filters beside it.
    const bool threads_do = c.conv.gather && !c.conv.fuses_classes && size_of(c.operands.a) == 2 &&
                            s.tile_m <= 128 && s.tile_n <= 128;
    if (!threads_do || (gathers_b(c) && a.load_bytes < 16) ||
        (c.conv.kind == Conv::dgrad && b.load_bytes < 16))
      return false;
    const bool both = c.conv.kind == Conv::fprop;
    c.operands.load_bytes_a = both ? std::min(a.load_bytes, b.load_bytes) : a.load_bytes;
    c.operands.load_bytes_b = both ? c.operands.load_bytes_a : b.load_bytes;
  }
  // WGMMA reads only 16-bit elements across their contiguous dimension.
  if (size_of(c.operands.a) != 2 && (a.major == Major::mn || b.major == Major::mn)) return false;
  if (!fits_maps(c, p)) return false;
  if (c.warps.pingpong && c.schedule.split != SplitKMode::none) return false;
  if (!registers_suffice(c)) return false;
  // With one warpgroup multiplying, nothing covers the additions of columns scaled singly.
  if (c.warps.pingpong && c.epilogue.scaling == Scaling::block && c.scales.rows_b == 1)
    return false;
  // A K-major operand's share of a multicast must be whole groups of 8 rows, so that the swizzle
  // fits together.
  if (b.major == Major::k && piece % (8 * s.multicast_m) != 0) return false;
  // Small stages are merged: half the barriers for the same bytes. Promotion wants one k block
  // each.
  const bool one_tap =
      c.conv.gather ? false : !gathers_a(c) || gathered_channels(geometry) % (2 * atom) == 0;
  if (!c.scales.promote && (s.tile_m + s.tile_n) * 128 < 16384 * 5 / 4 && p.k > int64_t(atom) &&
      one_tap)
    c.tile.k = 2 * atom;
  if (c.conv.kind != Conv::none && !shape_conv(p, geometry, c)) return false;
  // Joins that end in a part of the tile per CTA store it directly.
  const bool whole_tiles = c.cluster.k == 1 && c.schedule.split != SplitKMode::parallel;
  const bool clipped_stores = c.schedule.grouping == Grouping::none ||
                              c.schedule.grouping == Grouping::k ||
                              (c.schedule.grouping == Grouping::classes && p.batch == 1) ||
                              stores_ragged(c.schedule.grouping, c.epilogue.order);
  c.store.by_tma = whole_tiles && clipped_stores && !c.conv.fuses_classes && store_by_tma_fits(c) &&
                   output_alignment(p.d, c.epilogue.order, p) == 16;
  c = with_stages(c, kMostStages, uint32_t(device.shared_memory_per_block));
  // What is left goes to D: with room for all of a warpgroup's chunks, none waits for another.
  while (c.store.by_tma && c.store.chunks < store_chunks_of_tile(c)) {
    GemmConfig roomier = c;
    ++roomier.store.chunks;
    if (smem_plan(roomier).bytes > uint32_t(device.shared_memory_per_block)) break;
    c = roomier;
  }
  return c.tile.stages >= kLeastStages;
}

/// Steps of `step` elements that cover all groups of a dimension of `total` elements, as far as the
/// host can tell: a group ends within a step, halfway on average.
double expected_steps(int64_t total, int64_t groups, uint32_t step) {
  const double mean = double(total) / double(std::max<int64_t>(groups, 1));
  return double(groups) * std::max(mean / step + (mean > 1 ? 0.5 : 0.0), std::min(mean, 1.0));
}

/// What the schedule leaves open until the GPU knows the groups, and what differs from tile to tile:
/// on average.
void expect(const GemmTiles& tiles, Choice& choice) {
  const GemmProblem& p = choice.problem;
  const GemmConfig& c = choice.config;
  choice.tiles = double(tiles.total);
  switch (c.schedule.grouping) {
    case Grouping::m:
      choice.tiles = expected_steps(p.m, p.batch, group_step(c)) * tiles.n;
      break;
    case Grouping::n:
      choice.tiles = expected_steps(p.n, p.batch, group_step(c)) * tiles.m;
      break;
    case Grouping::k:
      choice.schedule.k_blocks = uint32_t(
          std::max(std::lround(expected_steps(p.k, p.batch, c.tile.k) / double(p.batch)), 1l));
      break;
    case Grouping::classes:
      choice.schedule.k_blocks = uint32_t(ceil_div<uint64_t>(tiles.line, tiles.total / p.batch));
      break;
    case Grouping::none:
      break;
  }
}

}  // namespace

std::optional<Choice> make_choice(const GemmProblem& problem, const DeviceInfo& device,
                                  const Spec& spec) {
  Choice choice;
  choice.spec = spec;
  const bool is_conv = problem.conv.kind != Conv::none;
  if (is_conv ? spec.transposed : spec.fuses_classes || spec.gather) return std::nullopt;
  if (problem.precision == Precision::ieee && spec.family == KernelFamily::sm90)
    return std::nullopt;
  const auto view = spec.transposed ? std::optional(transposed(problem))
                    : is_conv       ? conv_view(problem, spec)
                                    : std::optional(problem);
  if (!view) return std::nullopt;
  choice.problem = *view;
  if (is_conv) choice.geometry = conv_geometry(problem.conv, problem.batch);
  const GemmProblem& p = choice.problem;
  auto [a, b] = is_conv ? conv_operands(p)
                        : std::pair(operand(p.a, p.a.stride_col, p.k, p.a.stride_row, p.m, p.batch,
                                            p.groups, Grouping::m),
                                    operand(p.b, p.b.stride_row, p.k, p.b.stride_col,
                                            columns_of_b(p), p.batch, p.groups, Grouping::n));
  // The ups begin n columns after the gates.
  if (p.activation == Activation::swiglu && b.major == Major::mn)
    b.load_bytes = common_alignment(b.load_bytes, p.b.dtype, p.n, 0);

  GemmConfig& c = choice.config;
  c.family = spec.family;
  c.operands.a = p.a.dtype;
  c.operands.b = p.b.dtype;
  c.epilogue.d = p.d.dtype;
  c.operands.precision = p.precision;
  c.epilogue.has_c = p.has_c;
  c.epilogue.c =
      p.has_c ? p.c.dtype
              : c.epilogue.d;  // one kernel for all problems that do not read C (or the bias)
  c.epilogue.bias = p.bias;
  c.epilogue.bias_dtype = p.bias == Bias::none ? c.epilogue.d : p.bias_dtype;
  c.epilogue.activation = p.activation;
  c.operands.a_major = a.major;
  c.operands.b_major = b.major;
  c.epilogue.order = output_order(p).value_or(Order::row);
  c.epilogue.scaling = p.scale_a.kind;
  c.scales.rows_a = c.epilogue.scaling == Scaling::block ? p.scale_a.rows : 1;
  c.scales.rows_b = c.epilogue.scaling == Scaling::block ? p.scale_b.rows : 1;
  c.scales.promote =
      c.epilogue.scaling == Scaling::block || (is_fp8(c.operands.a) && !p.fast_accumulation);
  c.conv.kind = p.conv.kind;
  c.conv.fuses_classes = spec.fuses_classes;
  c.conv.gather = spec.gather;
  c.conv.batches_taps = batches_taps(problem, spec);
  c.schedule.grouping = p.groups.dimension;
  c.schedule.group_capacity =
      c.schedule.grouping == Grouping::none ? 0 : std::bit_ceil(std::max(uint32_t(p.batch), 16u));
  c.epilogue.has_zero = p.has_zero;
  c.epilogue.has_scale_d = p.has_scale_d;
  c.epilogue.has_amax = p.has_amax;
  c.schedule.split = spec.split;
  // Slices: at least one K block each, and whole clusters of them.
  const auto reduce_slices = [&](uint32_t k_blocks) {
    const bool sliced = is_sliced(c.schedule.split);
    uint32_t slices = sliced ? std::min(std::max(spec.slices, 1u), std::max(k_blocks, 1u)) : 1;
    c.cluster.k = c.schedule.split == SplitKMode::cluster    ? slices
                  : c.schedule.split == SplitKMode::parallel ? spec.cluster_k
                                                             : 1;
    slices -= slices % c.cluster.k;
    if (sliced && slices <= 1) {  // nothing to join
      choice.spec.split = c.schedule.split = SplitKMode::none;
      c.cluster.k = 1;
      slices = 1;
    }
    return slices;
  };
  uint32_t slices = reduce_slices(UINT32_MAX);
  if (!shape_tile(spec, p, choice.geometry, a, b, device, c)) return std::nullopt;
  const ConvClasses classes = is_conv ? deal_classes(c, choice.geometry) : ConvClasses();
  const GemmTiles tiles = gemm_tiles(
      c, {uint32_t(p.m), uint32_t(p.n), uint32_t(p.k), uint32_t(p.batch)}, classes.table());
  if (slices > tiles.k_blocks) {
    slices = reduce_slices(tiles.k_blocks);
    if (!shape_tile(spec, p, choice.geometry, a, b, device, c)) return std::nullopt;
  }
  if (c.cluster.k > 1 &&
      (device.compute_capability / 10 != 9 || cluster_size(c) > kMostClusterBlocks))
    return std::nullopt;
  if (c.schedule.split == SplitKMode::cluster && sharers(c) > 1) return std::nullopt;
  // Any two CTAs find a pair of SMs, but how many larger clusters fit differs from
  // chip to chip.
  if (sharers(c) > 2 && c.cluster.k == 1) return std::nullopt;
  const bool streamed = c.schedule.split == SplitKMode::stream_k;
  if (streamed && c.schedule.grouping == Grouping::classes && p.batch > 1) return std::nullopt;
  if (!is_countable(c, tiles, slices)) return std::nullopt;

  choice.spec.slices = streamed ? spec.slices : slices;
  choice.spec.cluster_k = c.schedule.split == SplitKMode::parallel ? c.cluster.k : 1;
  const GemmGrid grid = gemm_grid(c, tiles, choice.spec.slices, uint32_t(device.num_sms));
  choice.schedule = grid.schedule;
  choice.blocks = grid.blocks;
  choice.counter_bytes = grid.counter_bytes;
  choice.partial_bytes = grid.partial_bytes;
  choice.most_tiles = uint32_t(tiles.total);
  expect(tiles, choice);
  return choice;
}

}  // namespace cleave
