#include "plan/direct/wgrad.h"

#include <algorithm>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "plan/direct/slices.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostVector = 8, kMostStrip = 8;
constexpr uint32_t kLeastStrip = 4;  // shorter ones share too little: where registers do not suffice
constexpr uint32_t kFewBytes[] = {16, 32}, kChannels = 32;  // of a CTA
constexpr uint32_t kMostSums = 80;                          // of a thread; and, so that two CTAs share an SM,
constexpr uint32_t kManySums = 40;
constexpr uint32_t kMostWords = 96;  // of what is loaded; with the sums, if two CTAs share an SM

// Fitted to 2,217 times of 36 layers on an H200, of which the fastest cuts are 9 % off, and to 46 of larger ones
// (docs/notes/2026-11-convolution.md).
constexpr double kStripClocks = 744;  // for what a strip loads to arrive, if no other CTA has the SM meanwhile
constexpr double kMultiplyInstructions = 2.42, kLoadInstructions = 9.2;  // with conversions, addresses
constexpr GradientCosts kCosts = {
    .launch = 2.14,
    .meeting = {.cluster = 1.42, .clusters = 1.37, .clusters_factor = 0.73, .slices = 2.88, .slices_factor = 1.4},
    .turn = 1.53,
    .memory_share = 0.759,
    .beside = 0.77};

/// Registers for what a thread loads.
uint32_t words_of(const DirectAxis& axis, uint32_t strip, uint32_t vector, DType type) {
  return (strip + gathered_span(Conv::wgrad, axis, strip).size()) * std::max(vector * size_of(type) / 4, 1u);
}

/// CTAs that share an SM.
uint32_t room_of(const GemmConfig& c) {
  const uint32_t words = words_of(c.direct.width, c.tile.m, c.direct.vector, c.operands.a);
  return words + direct_sums(c) <= kMostWords ? 2 : 1;
}

int64_t lines_of(const ConvLayout& conv) {
  return conv.images * outputs(conv.axes[1]);
}

}  // namespace

bool serves_tap_lines(const GemmProblem& p) {
  for (const ConvAxis& axis : p.conv.axes)
    if (uint32_t(axis.filter) > kMostGradientTaps) return false;
  return serves_narrow_gradients(p);
}

uint32_t tap_line_vector(const GemmProblem& p) {
  const uint32_t channels = common_alignment(uint64_t(p.batch) * p.conv.channels);
  // Outputs' pixels follow filter by filter: A is their transpose.
  uint32_t vector = std::min({p.a.dtype == DType::f32 ? 4 : kMostVector, channels,
                              aligned_channels(p.a, p.a.stride_col), aligned_channels(p.b, p.b.stride_row)});
  const auto group = uint32_t(p.conv.channels), taps = uint32_t(p.conv.axes[2].filter);
  while (vector > group && vector * group * taps > kManySums) vector /= 2;
  return vector;
}

std::optional<Spec> direct_wgrad_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!serves_tap_lines(p)) return std::nullopt;
  const uint32_t vector = tap_line_vector(p), channels = uint32_t(p.batch * p.conv.channels);
  const auto longest = uint32_t(outputs(p.conv.axes[2]));
  FastestSpec fastest(p, device, make_direct_wgrad_choice, predict_direct_wgrad_us);
  for (const uint32_t most : {kFewBytes[0] / size_of(p.a.dtype), kFewBytes[1] / size_of(p.a.dtype), kChannels}) {
    const uint32_t blocks = ceil_div(channels, std::max(most, vector));
    Spec spec{.family = KernelFamily::direct, .tile_n = round_up(ceil_div(channels, blocks), vector)};
    for (uint32_t strip = std::min(kMostStrip, longest); strip > 0; --strip) {
      if (strip < kLeastStrip && fastest.spec()) break;
      spec.tile_m = strip;
      const uint32_t room = room_of(direct_config(p, spec, vector));
      for (const Spec& own :
           sliced_specs(p, device, spec, ceil_div(channels, spec.tile_n), lines_of(p.conv), room, Deal::runs)) {
        fastest.offer(own);
      }
    }
  }
  return fastest.spec();
}

std::optional<Choice> make_direct_wgrad_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  // A tuned file's tile may be anything.
  if (!serves_tap_lines(problem) || spec.tile_m == 0 || spec.tile_n == 0) return std::nullopt;
  if (spec.tile_n > kDirectThreads * tap_line_vector(problem)) return std::nullopt;
  const ConvLayout& conv = problem.conv;
  Choice choice{.spec = spec, .problem = problem};
  GemmProblem& p = choice.problem;
  p.m *= p.batch;  // filters of all groups
  p.batch = 1;
  GemmConfig& c = choice.config = direct_config(problem, spec, tap_line_vector(problem));
  c.operands.a_major = c.operands.b_major = Major::mn;
  c.schedule.split = spec.split;
  c.cluster.k = spec.cluster_k;
  if (!has_slices(spec, device) || spec.slices > lines_of(conv)) return std::nullopt;
  if (!can_meet(c) || (spec.cluster_k > 1 && has_empty_slices(spec, lines_of(conv)))) return std::nullopt;
  if (c.direct.vector % c.direct.group != 0 || c.tile.n % c.direct.vector != 0 || c.tile.m > kMostStrip ||
      direct_sums(c) > kMostSums || words_of(c.direct.width, c.tile.m, c.direct.vector, p.a.dtype) > kMostWords ||
      direct_places(c) == 0 || smem_plan(c).bytes > uint32_t(device.shared_memory_per_block))
    return std::nullopt;
  const DirectShape shape = direct_wgrad_shape(choice);
  const uint32_t blocks = shape.blocks.divisor;
  const uint32_t slices = spec.cluster_k > 1 ? spec.slices : ceil_div(shape.lines, shape.steps);
  choice.spec.slices = slices;  // fewer, where lines are dealt evenly
  if (slices == 1) choice.spec.split = c.schedule.split = SplitKMode::none;
  if (uint64_t(blocks) * slices > INT32_MAX || lines_of(conv) > INT32_MAX) return std::nullopt;
  choice.blocks = blocks * slices;
  choice.tiles = double(blocks);
  choice.most_tiles = blocks;
  reserve_slices(choice, blocks, slices);
  return choice;
}

DirectShape direct_wgrad_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_images(conv);
  shape.channels = uint32_t(choice.problem.m);
  shape.lines = uint32_t(lines_of(conv));
  shape.steps = ceil_div(shape.lines, choice.spec.slices);
  shape.blocks = FastDivmod(ceil_div(shape.channels, c.tile.n));
  shape.columns = FastDivmod(ceil_div(shape.made[1], c.tile.m));
  shape.rows = FastDivmod(shape.made[0]);
  return shape;
}

double predict_direct_wgrad_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const DirectShape shape = direct_wgrad_shape(choice);
  const double loads = c.tile.m + gathered_span(Conv::wgrad, c.direct.width, c.tile.m).size();  // of a strip
  const double instructions = c.tile.m * direct_sums(c) * kMultiplyInstructions + loads * kLoadInstructions;
  const double issue = kDirectThreads / 32 * instructions / 4;
  const auto [beside, turns] = turns_of(choice, room_of(c), device);
  const double strips = ceil_div(shape.steps * shape.columns.divisor, direct_places(c));  // of a thread
  const double clocks = strips * std::max(kStripClocks + issue, beside * issue);
  return narrow_gradient_us(choice, device, turns, turns * clocks, kCosts);
}

}  // namespace cleave
