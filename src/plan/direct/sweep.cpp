#include "plan/direct/sweep.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/direct_sweep.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv.h"
#include "plan/choice/function_config.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kLeastChannels = 16, kMostChannels = 192;  // gathered
constexpr uint32_t kStep = 16;                               // of an instruction
constexpr uint32_t kFilters[] = {64, 32};                    // of a CTA
constexpr uint32_t kMostTaps = 5, kMostAhead = 2;            // along an axis; lines
constexpr int32_t kMostPadded = 1 << 24;
constexpr uint32_t kStoreBytes = 16;

// Fitted to 506 times of 190 layers of an H200, of which they are 11 % off (docs/notes/2026-11-convolution.md).
constexpr double kLaunchUs = 3.98;
constexpr double kTurnClocks = 283, kLineClocks = 69, kColumnClocks = 11.6;  // beside multiplications; of a channel
constexpr double kMultiplyAddsPerClock = 2048, kClockGhz = 1.95;
constexpr double kMemoryShare = 0.64, kBeside = 0.13;  // of the shorter of work and memory, which that does not hide

bool is_served(const GemmProblem& p, const DeviceInfo& device) {
  const ConvLayout& conv = p.conv;
  if ((conv.kind != Conv::fprop && conv.kind != Conv::dgrad) || p.batch != 1 || p.m == 0) return false;
  if (device.compute_capability != 90 || !wants_direct(p)) return false;
  const int64_t gathered = gathered_group(conv);
  if (gathered < kLeastChannels || gathered > kMostChannels || gathered % 8 != 0 || made_group(conv) % 8 != 0)
    return false;
  for (const ConvAxis& axis : conv.axes) {
    const bool dilated = axis.dilation > 1 && axis.filter > 1;
    if (axis.stride > 1 || dilated || axis.filter > int32_t(kMostTaps)) return false;
    if (int64_t(axis.size) + axis.pad_begin + axis.pad_end > kMostPadded) return false;
  }
  if (conv.axes[1].filter == 1) return false;  // no line is met twice
  const ConvAxis& depth = conv.axes[0];
  if (depth.filter == 1 && (depth.pad_begin != 0 || depth.pad_end != 0)) return false;  // a plane is its own
  if (size_of(p.a.dtype) != 2 || p.b.dtype != p.a.dtype || !is_wide_float(p.d.dtype)) return false;
  if (is_gated(p) || reduces(p) || p.has_scale_d || p.has_amax || finds_scales(p)) return false;
  const int64_t filter = conv.kind == Conv::fprop ? p.b.stride_col : p.b.stride_row;
  return aligned_channels(p.a, p.a.stride_row) >= 8 && aligned_channels(p.b, filter) >= 8 &&
         aligned_channels(p.d, p.d.stride_row) >= kStoreBytes / size_of(p.d.dtype);
}

GemmConfig sweep_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, 8);
  c.direct.method = DirectMethod::sweep;
  c.direct.group = 1;
  c.direct.height.phase = c.direct.width.phase = 0;
  c.direct.depth = direct_axis(p.conv.kind, p.conv.axes[0]);
  c.direct.depth.phase = 0;
  c.tile.k = round_up(uint32_t(gathered_group(p.conv)), kStep);
  c.tile.stages = 1 + spec.ahead;
  c.operands.b_major = p.conv.kind == Conv::fprop ? Major::k : Major::mn;
  c.store.run_bytes = kStoreBytes;
  c.epilogue.function = function_config(p, false);
  return c;
}

/// Lines of neighbouring images that a warpgroup has beside each other; 1 where lines are longer than its rows.
uint32_t together_of(const ConvLayout& conv) {
  const uint32_t made = pixels_made(conv.kind, conv.axes[2]), around = uint32_t(conv.axes[2].filter - 1);
  if (conv.axes[0] != ConvAxis{} || made > kSweepRows) return 1;
  return std::max((kSweepRows + around) / (made + around), 1u);
}

/// Made lines of all columns.
int64_t lines_of(const ConvLayout& conv) {
  const int64_t planes = conv.images * pixels_made(conv.kind, conv.axes[0]);
  return ceil_div<int64_t>(planes, together_of(conv)) * ceil_div(pixels_made(conv.kind, conv.axes[2]), kSweepRows) *
         pixels_made(conv.kind, conv.axes[1]);
}

bool is_cut(const GemmProblem& p, const DeviceInfo& device, const Spec& spec) {
  const Spec own{.family = KernelFamily::direct, .tile_m = kSweepRows, .tile_n = spec.tile_n, .ahead = spec.ahead};
  if (spec != own || spec.ahead == 0 || spec.ahead > kMostAhead) return false;
  if (std::ranges::find(kFilters, spec.tile_n) == std::end(kFilters)) return false;
  const GemmConfig c = sweep_config(p, spec);
  return sweep_columns(c) <= 256 && smem_plan(c).bytes <= uint32_t(device.shared_memory_per_block);
}

}  // namespace

std::optional<Spec> direct_sweep_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p, device)) return std::nullopt;
  FastestSpec fastest(p, device, make_direct_sweep_choice, predict_direct_sweep_us);
  for (const uint32_t n : kFilters) {
    for (uint32_t ahead = kMostAhead; ahead > 0; --ahead) {
      const Spec spec{.family = KernelFamily::direct, .tile_m = kSweepRows, .tile_n = n, .ahead = ahead};
      if (!is_cut(p, device, spec)) continue;
      fastest.offer(spec);
      break;  // as many as fit
    }
  }
  return fastest.spec();
}

std::optional<Choice> make_direct_sweep_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  if (!is_served(problem, device) || !is_cut(problem, device, spec)) return std::nullopt;
  Choice choice{.spec = spec, .problem = problem};
  const GemmConfig& c = choice.config = sweep_config(problem, spec);
  const int64_t lines = lines_of(problem.conv);
  if (lines > INT32_MAX || problem.m > INT32_MAX) return std::nullopt;
  const uint32_t blocks = ceil_div(uint32_t(problem.n), c.tile.n);
  const int64_t most = std::max<int64_t>(device.num_sms / blocks, 1);
  choice.blocks = blocks * uint32_t(std::min(most, ceil_div<int64_t>(lines, kSweepGroups)));
  choice.tiles = double(lines) * blocks;
  choice.most_tiles = uint32_t(std::min<int64_t>(lines * blocks, INT32_MAX));
  return choice;
}

DirectShape direct_sweep_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_padded_images(conv);
  shape.channels = uint32_t(choice.problem.n);
  shape.images = uint32_t(conv.images) * pixels_made(conv.kind, conv.axes[0]);
  shape.together = together_of(conv);
  const uint32_t blocks = ceil_div(shape.channels, c.tile.n);
  shape.blocks = FastDivmod(blocks);
  shape.columns = FastDivmod(ceil_div(shape.made[1], kSweepRows));
  shape.rows = FastDivmod(shape.made[0]);
  shape.tiles = uint32_t(lines_of(conv));
  shape.steps = ceil_div(shape.tiles, choice.blocks / blocks * kSweepGroups);
  return shape;
}

double predict_direct_sweep_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const DirectShape shape = direct_sweep_shape(choice);
  const double begun = 1 + double(shape.steps - 1) / shape.rows.divisor;
  const double lines = shape.steps + begun * (c.direct.height.taps - 1);
  const double of_turn = double(c.direct.width.taps) * kSweepRows * sweep_columns(c) * c.tile.k / kMultiplyAddsPerClock;
  const double of_line = c.direct.depth.taps * (kSweepGroups * of_turn + kTurnClocks) + kLineClocks;
  const double clocks = lines * (of_line + kColumnClocks * c.tile.n);
  const double work = clocks / (kClockGhz * 1e3);
  const double memory = minimum_bytes(choice.problem) / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  return kLaunchUs + std::max(work, memory) + kBeside * std::min(work, memory);
}

}  // namespace cleave
