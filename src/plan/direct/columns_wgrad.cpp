#include "plan/direct/columns_wgrad.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cleave/config/direct_columns.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv.h"
#include "plan/direct/column_cuts.h"
#include "plan/direct/kernels.h"
#include "problem/problem.h"

namespace cleave {
namespace {

// 0.84 to 1.15 of what an H200 took for 56 layers and cuts.
constexpr double kLaunchUs = 6.1;
constexpr double kMemoryShare = 0.78;
constexpr double kIssueShare = 0.85;
constexpr double kLoadInstructions = 4.7, kLineInstructions = 137;  // the latter while it waits for a line's pixels
constexpr double kHidden = 0.03;                                    // of what takes less than the other costs still

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
  return c;
}

uint32_t blocks_of(const GemmProblem& p, const GemmConfig& c) {
  return ceil_div(uint32_t(p.batch * p.conv.channels), c.tile.n);
}

/// Whether threads, and their registers, suffice, and there is something in each slice. A tuned file's spec may be
/// anything.
bool is_cut(const GemmProblem& p, const Spec& spec) {
  const uint32_t vector = spec.columns, widest = widest_vector(p);
  if (vector == 0 || vector > widest || widest % vector != 0 || vector % uint32_t(p.conv.channels) != 0) return false;
  if (spec.tile_m == 0 || spec.tile_m > kMostColumnStrip) return false;
  if (spec.tile_n == 0 || spec.tile_n % vector != 0 || spec.tile_n > kDirectThreads * vector) return false;
  const bool sliced = spec.split == SplitKMode::parallel && spec.slices > 1;
  const Spec own{.family = KernelFamily::direct,
                 .tile_m = spec.tile_m,
                 .tile_n = spec.tile_n,
                 .columns = spec.columns,
                 .split = sliced ? spec.split : SplitKMode::none,
                 .slices = sliced ? spec.slices : 1};
  if (spec != own) return false;
  const GemmConfig c = columns_config(p, spec);
  return has_columns(c) && spec.slices <= column_cells(c, p.conv);
}

/// As many as fill the GPU.
void set_slices(const GemmProblem& p, const DeviceInfo& device, Spec& spec) {
  if (p.split_k_mode == SplitKMode::none || !is_cut(p, spec)) return;
  const GemmConfig c = columns_config(p, spec);
  const uint32_t resident = uint32_t(device.num_sms) * ctas_of_sm(c);
  const int64_t wanted = p.split_k_slices > 0 ? p.split_k_slices : resident / blocks_of(p, c);
  const int64_t cells = column_cells(c, p.conv);
  const int64_t slices = std::clamp<int64_t>(wanted, 1, cells);
  spec.slices = uint32_t(ceil_div(cells, ceil_div(cells, slices)));  // none is empty
  if (spec.slices > 1) spec.split = SplitKMode::parallel;
}

}  // namespace

std::optional<Spec> direct_columns_wgrad_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!serves_narrow_gradients(p)) return std::nullopt;
  std::optional<Spec> best;
  double least = std::numeric_limits<double>::infinity();
  for (uint32_t vector = kMostColumnVector; vector > 0; vector /= 2) {
    const uint32_t n = column_channels(p, vector);
    for (uint32_t strip = 1; strip <= kMostColumnStrip; ++strip) {
      Spec spec{.family = KernelFamily::direct, .tile_m = strip, .tile_n = n, .columns = vector};
      set_slices(p, device, spec);
      const auto choice = make_direct_columns_wgrad_choice(p, device, spec);
      if (!choice) continue;
      const double us = predict_direct_columns_wgrad_us(*choice, device);
      if (us < least) best = spec, least = us;
    }
  }
  return best;
}

std::optional<Choice> make_direct_columns_wgrad_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                       const Spec& spec) {
  if (!serves_narrow_gradients(problem) || !is_cut(problem, spec)) return std::nullopt;
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
  if ((spec.slices - 1) * ceil_div<int64_t>(cells, spec.slices) >= cells) return std::nullopt;  // an empty one
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
  const ConvLayout& conv = choice.problem.conv;
  const DirectShape shape = direct_columns_wgrad_shape(choice);
  const double lines = column_lines(c, shape), cells = lines / c.direct.height.stride;
  const double pixels = double(c.direct.height.stride) * gathered_span(Conv::wgrad, c.direct.width, c.tile.m).size();
  const double conversions = size_of(c.operands.a) == 2 ? c.direct.vector : 0;
  const double instructions = column_multiply_adds(c) + (pixels + c.tile.m) * (conversions + kLoadInstructions) +
                              c.direct.height.stride * kLineInstructions;
  const double of_sm = std::ceil(double(choice.blocks) / device.num_sms);
  const double clocks = cells * of_sm * kDirectThreads / 32 * instructions / 4 / kIssueShare;
  const double multiply = clocks / (device.clock_ghz * 1e3);
  const double elements = (double(output_pixels(conv)) + double(image_pixels(conv))) * shape.channels;
  const double memory = elements * size_of(c.operands.a) / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  return kLaunchUs + slice_sums_us(choice) + std::max(multiply, memory) + kHidden * std::min(multiply, memory);
}

}  // namespace cleave
