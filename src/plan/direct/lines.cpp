#include "plan/direct/lines.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cleave/config/direct_lines.h"
#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "plan/direct/shift.h"
#include "plan/direct/slices.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kMostFilters = 16;
// Registers of a thread, for sums and held lines: beyond these NVRTC keeps some in memory. Neighbours in 3x3 need few
// beside.
constexpr uint32_t kMostWords = 72, kMostOfNeighbours = 88;
constexpr uint32_t kMostTaps = 16, kMostOfLine = 6;  // along an axis, and along a line
constexpr int32_t kMostDilation = 8;
constexpr int64_t kMostPlanes = 1 << 20;  // of all images
constexpr uint32_t kWarps = kDirectThreads / 32;
constexpr uint32_t kTileSizes[] = {128, 256}, kChannels[] = {64, 32};

// An H200 took 0.8 to 1.13 of what follows, for 11 layers in 8 cuts each; how slices meet is fitted to 8 other layers.
constexpr double kLaunchUs = 5.75;
constexpr MeetingCosts kMeeting = {
    .cluster = 0, .clusters = 0.64, .clusters_factor = 0.94, .slices = 0.86, .slices_factor = 1.38};
constexpr double kMultiplyClocks = 2.2;    // of a product, with what it reads from shared memory
constexpr double kTileClocks = 1130;       // that a tile takes besides
constexpr double kLoadBytesPerClock = 13;  // of an SM
constexpr double kMemoryShare = 0.85;

bool is_served(const GemmProblem& p, const DeviceInfo& device) {
  const ConvLayout& conv = p.conv;
  if (conv.kind != Conv::wgrad || p.batch != 1 || conv.filters > kMostFilters || conv.channels % 8 != 0) return false;
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.k > INT32_MAX || p.n > INT32_MAX) return false;
  if (!are_countable(conv, kMostTaps, kMostDilation) || conv.axes[2].filter > int32_t(kMostOfLine)) return false;
  if (const ConvAxis& depth = conv.axes[0];
      depth.stride > kMostDirectStride || depth.filter > int32_t(kMostTaps) || depth.dilation > kMostDilation ||
      conv.images * std::max<int64_t>(depth.size, outputs(depth)) > kMostPlanes || depth.pad_begin > kMostPlanes)
    return false;
  if (size_of(p.a.dtype) != 2 || p.b.dtype != p.a.dtype || !is_wide_float(p.d.dtype)) return false;
  if (aligned_channels(p.b, p.b.stride_row) < 8 || p.epilogue.function != nullptr) return false;
  // Outputs' gradients are copied line by line.
  if (p.a.stride_col != conv.filters || outputs(conv.axes[2]) * conv.filters % 2 != 0) return false;
  if (p.a.alignment % line_piece(uint32_t(conv.filters)) != 0) return false;
  if (is_gated(p) || reduces(p) || p.has_scale_d || p.has_amax || finds_scales(p)) return false;
  const bool splits = p.split_k_mode == SplitKMode::automatic || p.split_k_mode == SplitKMode::parallel;
  const bool wanted = p.kernel == KernelFamily::automatic || p.kernel == KernelFamily::direct;
  if (!wanted || (!splits && p.split_k_mode != SplitKMode::none) || device.compute_capability < 80) return false;
  return !direct_shift_spec(p, device);  // whose tiles have the same names
}

/// But for how a line is cut.
GemmConfig lines_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, 8);
  c.direct.method = DirectMethod::lines;
  c.direct.depth = direct_axis(Conv::wgrad, p.conv.axes[0]);
  c.tile.n = c.direct.group = uint32_t(p.conv.filters);
  c.tile.k = spec.tile_n;
  c.operands.a_major = c.operands.b_major = Major::mn;
  c.schedule.split = spec.split;
  c.cluster.k = spec.cluster_k;
  c.warps = {.m = c.tile.k / kLineChannels, .n = 1};
  c.warps.k = kWarps / c.warps.m;
  return c;
}

/// How tiles share an image: those along a line, and down.
struct Cut {
  uint32_t strips = 0;
  uint32_t columns = 0, rows = 0;
  double pixels = std::numeric_limits<double>::infinity();  // gathered, of all tiles

  int64_t tiles() const { return int64_t(columns) * rows; }
};

bool are_neighbours(const DirectConfig& d) {
  for (const DirectAxis& axis : {d.height, d.width})
    if (axis.taps > 3 || axis.stride > 1 || axis.dilation > 1) return false;
  return true;
}

/// The one that gathers least; without strips, if nothing fits.
Cut cut_of(GemmConfig c, const ConvLayout& conv, const DeviceInfo& device) {
  Cut best;
  if (line_sums(c) + line_words(c.direct) > (are_neighbours(c.direct) ? kMostOfNeighbours : kMostWords)) return best;
  for (uint32_t strips = c.warps.k; strips <= 2 * c.warps.k; strips *= 2) {
    c.direct.strips = strips;
    if (line_height(c) % 2 != 0 || smem_plan(c).bytes > uint32_t(device.shared_memory_per_block)) continue;
    Cut cut{.strips = strips,
            .columns = ceil_div(uint32_t(outputs(conv.axes[2])), line_width(c)),
            .rows = ceil_div(uint32_t(outputs(conv.axes[1])), line_height(c))};
    cut.pixels = double(cut.tiles()) * line_rows(c) * line_columns(c);
    if (cut.pixels < best.pixels) best = cut;
  }
  return best;
}

int64_t tiles_of(const Cut& cut, const ConvLayout& conv) {
  return cut.tiles() * conv.images * outputs(conv.axes[0]);
}

/// Blocks of channels, for each tap down the depth.
uint32_t blocks_of(const GemmProblem& p, const GemmConfig& c) {
  return ceil_div(uint32_t(p.conv.channels), c.tile.k) * c.direct.depth.taps;
}

/// Clocks of an SM that a tile takes of each of the CTAs it holds. Two overlap what they load with what they multiply,
/// in part.
double tile_clocks(const GemmConfig& c, double beside) {
  const double multiplied = c.tile.m / 16 * c.warps.m * line_sums(c) / 4.0 * kMultiplyClocks + kTileClocks;
  const double pixels = double(line_rows(c)) * line_columns(c) * c.tile.k * 2;
  const double loaded = (pixels + line_gradients_bytes(c)) / kLoadBytesPerClock;
  return beside > 1 ? beside * std::hypot(multiplied, loaded) : multiplied + loaded;
}

}  // namespace

std::optional<Spec> direct_lines_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p, device)) return std::nullopt;
  FastestSpec fastest(p, device, make_direct_lines_choice, predict_direct_lines_us);
  for (const uint32_t channels : kChannels) {
    if (channels > kChannels[1] && p.conv.channels <= kChannels[1]) continue;
    for (const uint32_t m : kTileSizes) {
      const Spec whole{.family = KernelFamily::direct, .tile_m = m, .tile_n = channels};
      GemmConfig c = lines_config(p, whole);
      const Cut cut = cut_of(c, p.conv, device);
      if (cut.strips == 0) continue;
      c.direct.strips = cut.strips;
      const int64_t tiles = tiles_of(cut, p.conv);
      for (uint32_t beside = 1; beside <= ctas_of_sm(c); ++beside)
        for (const Spec& spec : sliced_specs(p, device, whole, blocks_of(p, c), tiles, beside, Deal::turns))
          fastest.offer(spec);
    }
  }
  return fastest.spec();
}

std::optional<Choice> make_direct_lines_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  if (std::ranges::find(kTileSizes, spec.tile_m) == std::end(kTileSizes)) return std::nullopt;
  if (std::ranges::find(kChannels, spec.tile_n) == std::end(kChannels)) return std::nullopt;
  if (!is_served(problem, device)) return std::nullopt;
  if (!has_slices(spec, device)) return std::nullopt;
  Choice choice{.spec = spec, .problem = problem, .rows_of_d = problem.m};
  GemmConfig& c = choice.config = lines_config(problem, spec);
  const Cut cut = cut_of(c, problem.conv, device);
  if (cut.strips == 0) return std::nullopt;
  c.direct.strips = cut.strips;
  if (!can_meet(c)) return std::nullopt;
  if (!deal_slices(choice, tiles_of(cut, problem.conv), blocks_of(problem, c))) return std::nullopt;
  return choice;
}

DirectShape direct_lines_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_images(conv);
  set_depth(shape, conv);
  shape.channels = uint32_t(conv.channels);
  shape.cells[0] = line_height(c);
  shape.cells[1] = line_width(c);
  shape.images = uint32_t(conv.images) * shape.met_depth;
  shape.blocks = FastDivmod(blocks_of(choice.problem, c));
  shape.columns = FastDivmod(ceil_div(shape.made[1], shape.cells[1]));
  shape.rows = FastDivmod(ceil_div(shape.made[0], shape.cells[0]));
  shape.tiles = choice.most_tiles;
  return shape;
}

double predict_direct_lines_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const auto [beside, turns] = turns_of(choice, ctas_of_sm(c), device);
  const double clocks = std::ceil(choice.tiles / choice.blocks) * turns * tile_clocks(c, beside);
  const double busy = clocks / (device.clock_ghz * 1e3);
  const double memory = gradient_bytes(choice.problem.conv) / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  return kLaunchUs + meeting_us(choice, kMeeting) + std::max(busy, memory);
}

}  // namespace cleave
