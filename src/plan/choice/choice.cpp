#include "plan/choice/choice.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cleave/config/clusters.h"
#include "cleave/config/dependent_launch.h"
#include "cleave/config/loads.h"
#include "cleave/config/staged_c.h"
#include "launch/conv_grid.h"
#include "launch/gemm_grid.h"
#include "launch/limits.h"
#include "plan/choice/conv_choice.h"
#include "plan/choice/function_config.h"
#include "plan/choice/operand_layout.h"
#include "plan/choice/resident_clusters.h"
#include "plan/choice/tile_shape.h"
#include "plan/direct/choice.h"
#include "plan/plans/quantize_apart.h"
#include "plan/plans/reductions.h"
#include "problem/conv.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// `spec` without the word "product", for the product that the problem is.
std::optional<Choice> make_product_choice(const GemmProblem& problem, const DeviceInfo& device, Spec spec) {
  const auto product = matrix_product(problem);
  if (!product) return std::nullopt;
  spec.product = false;
  auto choice = make_choice(*product, device, spec);
  if (choice) choice->spec.product = true;
  return choice;
}

/// `spec` without the word "by_group", for one of the groups.
std::optional<Choice> make_group_choice(const GemmProblem& problem, const DeviceInfo& device, Spec spec) {
  if (!may_run_by_group(problem)) return std::nullopt;
  spec.by_group = false;
  auto choice = make_choice(one_group(problem), device, spec);
  if (!choice || choice->parts > 1) return std::nullopt;
  choice->spec.by_group = true;
  choice->parts = uint32_t(problem.batch);
  return choice;
}

/// `spec` without its words, for the product whose D another kernel quantises.
std::optional<Choice> make_apart_choice(const GemmProblem& problem, const DeviceInfo& device, Spec spec) {
  const bool halves = spec.halves;
  if (!spec.apart || !may_quantize_apart(problem, halves)) return std::nullopt;
  spec.apart = spec.halves = false;
  auto choice = make_choice(unquantized(problem, halves), device, spec);
  if (!choice) return choice;
  choice->spec.apart = true;
  choice->spec.halves = halves;
  choice->apart_bytes = unquantized_bytes(choice->problem);
  return choice;
}

constexpr uint32_t kMostClusterBlocks = 16;  // Hopper's limit, beyond the portable 8

/// What the schedule leaves open until the GPU knows the groups, and what differs from tile to tile:
/// on average.
void expect(const GemmTiles& tiles, Choice& choice) {
  const GemmProblem& p = choice.problem;
  const GemmConfig& c = choice.config;
  const int64_t spacing = p.groups.bounds == GroupBounds::aligned_ends ? p.groups.spacing : 1;
  choice.likely_tiles = Likely(double(tiles.total));
  switch (c.schedule.grouping) {
    case Grouping::m:
      choice.likely_tiles = likely_steps(p.m, p.batch, group_step(c), spacing).times(tiles.n);
      break;
    case Grouping::n:
      choice.likely_tiles = likely_steps(p.n, p.batch, group_step(c), spacing).times(tiles.m);
      break;
    case Grouping::k:
      choice.schedule.k_blocks =
          uint32_t(std::max(std::lround(likely_steps(p.k, p.batch, c.tile.k, spacing).mean() / double(p.batch)), 1l));
      break;
    case Grouping::classes:
      choice.schedule.k_blocks = uint32_t(ceil_div<uint64_t>(tiles.line, tiles.total / p.batch));
      break;
    case Grouping::none:
      break;
  }
  choice.tiles = choice.likely_tiles.mean();
}

/// A scale is shared by at most a k block, as far as the kernel knows.
WeightConfig weight_config(const GemmProblem& p) {
  const WeightLayout& weights = p.weights_a;
  if (weights.format == WeightFormat::none) return {};
  const bool within = weights.group < min_of<int64_t>(p.k, kWidestWeightGroup);  // a k block
  return {weights.format, within ? uint32_t(weights.group) : kWidestWeightGroup, weights.has_zero};
}

EpilogueConfig epilogue_config(const Spec& spec, const GemmProblem& p) {
  EpilogueConfig c;
  c.d = p.d.dtype;
  c.order = output_order(p).value_or(Order::row);
  c.has_c = p.has_c;
  c.c_pairs = c_has_pairs(p, spec.fuses_classes);
  c.c = p.has_c ? p.c.dtype : c.d;  // one kernel for all problems that do not read C (or the bias)
  c.bias = p.bias;
  c.bias_dtype = p.bias == Bias::none ? c.d : p.bias_dtype;
  c.scaling = scaling_of(p);
  if (c.scaling == Scaling::vector) {
    c.scaled_rows = p.scale_a.kind == Scaling::vector;
    c.scaled_columns = p.scale_b.kind == Scaling::vector;
  }
  c.has_zero = p.has_zero;
  c.has_scale_d = p.has_scale_d;
  c.has_amax = p.has_amax;
  c.has_scale_out = finds_scales(p);
  c.ue8m0 = p.ue8m0_scale_out;
  c.function = function_config(p, spec.fuses_classes);
  return c;
}

/// What the problem and the spec say by themselves.
GemmConfig base_config(const Spec& spec, const GemmProblem& p, const OperandLayouts& operands) {
  GemmConfig c;
  c.family = spec.family;
  c.operands.a = p.a.dtype;
  c.operands.b = p.b.dtype;
  c.operands.a_major = operands.a.major;
  c.operands.b_major = operands.b.major;
  c.operands.precision = p.precision;
  c.operands.listed = p.gather.given;
  c.weights = weight_config(p);
  c.schedule.split = spec.split;
  c.schedule.in_turn = spec.in_turn;
  c.schedule.grouping = p.groups.dimension;
  c.schedule.group_capacity =
      c.schedule.grouping == Grouping::none ? 0 : std::bit_ceil(std::max(uint32_t(p.batch), 16u));
  c.schedule.apart = p.groups.apart;
  c.conv.kind = p.conv.kind;
  c.conv.fuses_classes = spec.fuses_classes;
  c.conv.gather = spec.gather;
  c.conv.half_lines = spec.half_lines;
  c.conv.turned = is_turned(p, spec);
  c.epilogue = epilogue_config(spec, p);
  const bool by_block = c.epilogue.scaling == Scaling::block;
  if (by_block) {
    c.scales.rows_a = p.scale_a.rows;
    c.scales.rows_b = p.scale_b.rows;
  }
  c.scales.promote = by_block || (is_fp8(c.operands.a) && !p.fast_accumulation) || in_parts(p.precision) ||
                     (has_weights(c) && size_of(c.operands.a) == 1);
  return c;
}

/// Weights that are packed take M, where registers are an operand. They are no other CTA's, and two consumers at
/// different tiles have not been tried.
bool serves_weights(const Spec& spec) {
  if (spec.family == KernelFamily::streamed) return spec.transposed;
  return has_wgmma(spec.family) && spec.transposed && !spec.narrow && !spec.pingpong && spec.multicast_n == 1;
}

/// Sets the split of `choice`: at least one K block for each slice, and whole clusters of slices.
uint32_t set_slices(const Spec& spec, uint32_t k_blocks, Choice& choice) {
  GemmConfig& c = choice.config;
  if (!is_sliced(c.schedule.split) && !spec.in_turn) return 1;
  uint32_t slices = std::min(std::max(spec.slices, 1u), std::max(k_blocks, 1u));
  c.cluster.k = c.schedule.split == SplitKMode::cluster    ? slices
                : c.schedule.split != SplitKMode::parallel ? 1
                : spec.in_turn                             ? 1
                                                           : spec.cluster_k;
  c.schedule.turns = c.schedule.split == SplitKMode::parallel && spec.in_turn ? spec.cluster_k : 1;
  slices -= slices % slices_together(c);
  if (slices > 1) return slices;
  choice.spec.split = c.schedule.split = SplitKMode::none;  // nothing to add up
  choice.spec.in_turn = c.schedule.in_turn = false;
  c.cluster.k = c.schedule.turns = 1;
  return 1;
}

/// Whether the kernel's clusters, and the split's, are ones that the device runs. `tiles`: of whole clusters.
bool clusters_fit(const GemmConfig& c, uint64_t tiles, const DeviceInfo& device) {
  if (c.cluster.k > 1 && (!arch_traits(device.compute_capability).has_clusters || cluster_size(c) > kMostClusterBlocks))
    return false;
  if (c.schedule.split == SplitKMode::cluster && sharers(c) > 1) return false;
  // Any two CTAs find a pair of SMs, but how many larger clusters fit differs from chip to chip: none of them waits for
  // another, and those that do not fit would make a second wave.
  const bool waits = c.schedule.split != SplitKMode::none || c.schedule.in_turn;
  return sharers(c) <= 2 || (!waits && tiles <= resident_clusters(sharers(c), device));
}

}  // namespace

std::optional<Choice> make_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec,
                                  uint32_t part) {
  if (spec.apart || spec.halves) return make_apart_choice(problem, device, spec);
  if (spec.product) return make_product_choice(problem, device, spec);
  if (spec.by_group) return make_group_choice(problem, device, spec);
  if (spec.family == KernelFamily::direct) return make_direct_choice(problem, device, spec);
  if (spec.columns > 0 || spec.ahead > 0 || spec.at_once) return std::nullopt;
  const bool is_conv = problem.conv.kind != Conv::none;
  if (is_conv ? spec.narrow : spec.fuses_classes || spec.gather || spec.half_lines) return std::nullopt;
  if (is_conv && spec.transposed && !may_turn(problem, spec)) return std::nullopt;
  if (spec.half_lines && !may_halve_lines(problem, spec)) return std::nullopt;
  if (spec.transposed && finds_scales(problem)) return std::nullopt;
  const bool packed = problem.weights_b.format != WeightFormat::none;
  if (packed ? !serves_weights(spec) : spec.family == KernelFamily::streamed) return std::nullopt;
  if (problem.precision != Precision::tf32 && has_wgmma(spec.family)) return std::nullopt;
  std::optional<Choice> made(std::in_place);  // a planner makes hundreds: never copied
  Choice& choice = *made;
  choice.spec = spec;
  if (is_conv) {
    const auto view = conv_view(problem, spec);
    if (!view) return std::nullopt;
    choice.problem = *view;
    choice.part = part;
    choice.parts = count_parts(problem.conv, spec.fuses_classes);
  } else {
    choice.problem = spec.transposed ? transposed(problem) : problem;
  }
  // Columns of fused classes are pixels, and parts of a convolution have rows of D that others have not.
  if (reduces(problem) && (spec.fuses_classes || choice.parts > 1)) return std::nullopt;
  const GemmProblem& p = choice.problem;
  choice.rows_of_d = is_conv && !spec.transposed ? problem.m : p.m;
  OperandLayouts operands = operand_layouts(p, is_turned(p, spec));
  const bool patches = makes_patches(problem, spec);
  if (patches) operands.b.load_bytes = operands.b.alignment;  // whole filters are lines
  GemmConfig& c = choice.config = base_config(spec, p, operands);
  c.conv.batches_taps = batches_taps(problem, spec);
  c.conv.patches = patches;
  uint32_t slices = set_slices(spec, UINT32_MAX, choice);
  const auto shape = [&] { return shape_tile(spec, p, part, operands, device, c); };
  if (!shape()) return std::nullopt;
  const ConvClasses classes = is_conv ? deal_classes(c, p.conv, part) : ConvClasses();
  const GemmTiles tiles =
      gemm_tiles(c, {uint32_t(p.m), uint32_t(p.n), uint32_t(p.k), uint32_t(p.batch)}, classes.table());
  if (slices > tiles.k_blocks) {
    slices = set_slices(spec, tiles.k_blocks, choice);
    if (!shape()) return std::nullopt;
  }
  if (!clusters_fit(c, tiles.total, device)) return std::nullopt;
  c.epilogue.c_words = stages_c(c);  // others do not ask, and are one kernel whatever C is
  c.operands.static_a = p.static_a && may_load_early(c) && (has_map_a(c) || has_weights(c));
  c.operands.static_b = p.static_b && may_load_early(c) && has_map_b(c);
  const bool streamed = c.schedule.split == SplitKMode::stream_k;
  if (streamed && c.schedule.grouping == Grouping::classes && p.batch > 1) return std::nullopt;
  if (!is_countable(c, tiles, slices)) return std::nullopt;

  choice.spec.slices = streamed ? spec.slices : slices;
  choice.spec.cluster_k = c.schedule.split == SplitKMode::parallel ? slices_together(c) : 1;
  const GemmGrid grid = gemm_grid(c, tiles, choice.spec.slices, uint32_t(device.num_sms));
  choice.schedule = grid.schedule;
  choice.blocks = grid.blocks;
  choice.counter_bytes = grid.counter_bytes;
  choice.partial_bytes = grid.partial_bytes;
  choice.map_bytes = grid.map_bytes;
  if (reduces(p)) {
    const ReducedUnits units = reduced_units(c, tiles);
    choice.row_units = units.rows;
    choice.column_units = units.columns;
    choice.reduction_bytes = joins_of(choice).bytes();
  }
  choice.most_tiles = uint32_t(tiles.total);
  expect(tiles, choice);
  return made;
}

}  // namespace cleave
