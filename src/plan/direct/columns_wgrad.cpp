#include "plan/direct/columns_wgrad.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cleave/config/direct_columns.h"
#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv.h"
#include "plan/direct/column_cuts.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "plan/direct/slices.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kChannels[] = {16, 32, 64};  // of a CTA
constexpr uint32_t kWidest = 2;                 // of a thread, but for groups of more: else too many are idle

// Fitted to 1,228 times of 25 layers on an H200, of which the fastest cuts are 13 % off, and to 46 of larger ones,
// which are 9 % off (docs/notes/2026-11-convolution.md).
constexpr double kLineClocks = 253;  // of a line that waits, if no other CTA has the SM meanwhile
constexpr double kMultiplyInstructions = 0.64, kLoadInstructions = 7.6, kLineInstructions = 80;
constexpr GradientCosts kCosts = {
    .launch = 1.9,
    .meeting = {.cluster = 1.24, .clusters = 1.73, .clusters_factor = 1.14, .slices = 3.04, .slices_factor = 2.09},
    .turn = 1.3,
    .memory_share = 0.94,
    .beside = 0.46,
    .lone_share = 0.75};

/// Channels that threads load at once, at most.
uint32_t widest_vector(const GemmProblem& p) {
  const uint32_t channels = common_alignment(uint64_t(p.batch) * p.conv.channels);
  return std::min({kMostColumnVector, 16 / size_of(p.a.dtype), channels, aligned_channels(p.a, p.a.stride_col),
                   aligned_channels(p.b, p.b.stride_row)});
}

GemmConfig columns_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, spec.columns);
  c.direct.method = DirectMethod::columns;
  c.operands.a_major = c.operands.b_major = Major::mn;
  c.schedule.split = spec.split;
  c.cluster.k = spec.cluster_k;
  return c;
}

uint32_t blocks_of(const GemmProblem& p, const GemmConfig& c) {
  return ceil_div(uint32_t(p.batch * p.conv.channels), c.tile.n);
}

/// Whether threads, and their registers, suffice, and there is something in each slice. A tuned file's spec may be
/// anything.
bool is_cut(const GemmProblem& p, const DeviceInfo& device, const Spec& spec) {
  const uint32_t vector = spec.columns, widest = widest_vector(p);
  if (vector == 0 || vector > widest || widest % vector != 0 || vector % uint32_t(p.conv.channels) != 0) return false;
  if (spec.tile_m == 0 || spec.tile_m > kMostColumnStrip) return false;
  if (spec.tile_n == 0 || spec.tile_n % vector != 0 || spec.tile_n > kDirectThreads * vector) return false;
  const Spec own{.family = KernelFamily::direct,
                 .tile_m = spec.tile_m,
                 .tile_n = spec.tile_n,
                 .columns = spec.columns,
                 .split = spec.split,
                 .slices = spec.slices,
                 .cluster_k = spec.cluster_k};
  if (spec != own || !has_slices(spec, device)) return false;
  const GemmConfig c = columns_config(p, spec);
  if (!can_meet(c)) return false;
  return has_columns(c) && spec.slices <= column_cells(c, p.conv);
}

/// Channels of a CTA that are worth a look: so many that few threads are idle, and about as many as kChannels says.
std::vector<uint32_t> widths_of(const GemmProblem& p, uint32_t vector) {
  const uint32_t channels = uint32_t(p.batch * p.conv.channels);
  std::vector<uint32_t> widths = {column_channels(p, vector)};
  for (const uint32_t most : kChannels) {
    const uint32_t n = round_up(ceil_div(channels, ceil_div(channels, most)), std::max(kChannels[0], vector));
    if (std::find(widths.begin(), widths.end(), n) == widths.end()) widths.push_back(n);
  }
  return widths;
}

}  // namespace

std::optional<Spec> direct_columns_wgrad_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!serves_narrow_gradients(p)) return std::nullopt;
  FastestSpec fastest(p, device, make_direct_columns_wgrad_choice, predict_direct_columns_wgrad_us);
  for (uint32_t vector = std::max(kWidest, uint32_t(p.conv.channels)); vector > 0; vector /= 2) {
    for (const uint32_t n : widths_of(p, vector)) {
      for (uint32_t strip = 1; strip <= kMostColumnStrip; ++strip) {
        const Spec spec{.family = KernelFamily::direct, .tile_m = strip, .tile_n = n, .columns = vector};
        if (!is_cut(p, device, spec)) continue;
        const GemmConfig c = columns_config(p, spec);
        for (const Spec& own :
             sliced_specs(p, device, spec, blocks_of(p, c), column_cells(c, p.conv), ctas_of_sm(c), Deal::runs)) {
          fastest.offer(own);
        }
      }
    }
  }
  return fastest.spec();
}

std::optional<Choice> make_direct_columns_wgrad_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                       const Spec& spec) {
  if (!serves_narrow_gradients(problem) || !is_cut(problem, device, spec)) return std::nullopt;
  if (problem.a.stride_col > kMostColumnStride || problem.b.stride_row > kMostColumnStride) return std::nullopt;
  Choice choice{.spec = spec, .problem = problem};
  GemmProblem& p = choice.problem;
  p.m *= p.batch;  // filters of all groups
  p.batch = 1;
  const GemmConfig& c = choice.config = columns_config(problem, spec);
  if (smem_plan(c).bytes > uint32_t(device.shared_memory_per_block)) return std::nullopt;
  const int64_t cells = column_cells(c, problem.conv);
  const uint32_t blocks = blocks_of(problem, c);
  if (cells > INT32_MAX || uint64_t(blocks) * spec.slices > INT32_MAX) return std::nullopt;
  if (has_empty_slices(spec, cells)) return std::nullopt;
  choice.blocks = blocks * spec.slices;
  choice.tiles = double(blocks);
  choice.most_tiles = blocks;
  reserve_slices(choice, blocks, spec.slices);
  return choice;
}

DirectShape direct_columns_wgrad_shape(const Choice& choice) {
  return column_shape(choice, uint32_t(choice.problem.m));
}

double predict_direct_columns_wgrad_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const DirectShape shape = direct_columns_wgrad_shape(choice);
  const double lines = column_lines(c, shape), cells = lines / c.direct.height.stride;
  const double pixels = double(c.direct.height.stride) * gathered_span(Conv::wgrad, c.direct.width, c.tile.m).size();
  const double conversions = size_of(c.operands.a) == 2 ? c.direct.vector : 0;
  const double instructions = column_multiply_adds(c) * kMultiplyInstructions +
                              (pixels + c.tile.m) * (conversions + kLoadInstructions) +
                              c.direct.height.stride * kLineInstructions;
  const double issue = kDirectThreads / 32 * instructions / 4;
  const auto [beside, turns] = turns_of(choice, ctas_of_sm(c), device);
  const double clocks = cells * std::max(kLineClocks + issue, beside * issue);
  return narrow_gradient_us(choice, device, turns, turns * clocks, kCosts);
}

}  // namespace cleave
