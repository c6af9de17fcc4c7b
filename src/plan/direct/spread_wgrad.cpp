#include "plan/direct/spread_wgrad.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/direct_spread_wgrad.h"
#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "plan/direct/slices.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kMostFilters = 16;  // tiles of 64 serve more
constexpr uint32_t kMostBlocks = 3;   // of 8 columns of a warp: registers for their sums; of one that has
constexpr uint32_t kMostOfAll = 4;    // them all, one more
constexpr uint32_t kMostTaps = 64;    // along an axis
constexpr int32_t kMostDilation = 64;
constexpr int64_t kMostLine = 1 << 20;
constexpr uint32_t kMostLines = 32;  // of a tile
constexpr uint32_t kWarps = kDirectThreads / 32, kParts = kSpreadChannels / kSpreadOfWarp;
constexpr uint32_t kTileSizes[] = {512, 256};

// An H200 took 0.86 to 1.14 of what follows for 10 layers, each in 6 cuts; how slices meet is fitted to 8 other layers.
constexpr double kLaunchUs = 4.2;
constexpr MeetingCosts kMeeting = {
    .cluster = 0, .clusters = 0, .clusters_factor = 0.61, .slices = 0.29, .slices_factor = 1.14};
constexpr double kWaveUs = 3.8;     // until a CTA multiplies, and from then to its sums
constexpr double kStepUs = 0.71;    // of a warp: it waits for the pixels; where several
constexpr double kSharedUs = 0.57;  // load the same, L1 has them
constexpr double kFillUs = 0.43;    // for each round of outputs' gradients
constexpr double kBeside = 0.2;     // more, for another CTA on the SM
constexpr double kMemoryShare = 0.85;

bool is_served(const GemmProblem& p, const DeviceInfo& device) {
  const ConvLayout& conv = p.conv;
  if (conv.kind != Conv::wgrad || p.batch != 1 || conv.filters > kMostFilters || conv.channels % 8 != 0) return false;
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.k > INT32_MAX || p.n > INT32_MAX || image_pixels(conv) > INT32_MAX)
    return false;
  if (!are_countable(conv, kMostTaps, kMostDilation) || conv.axes[2].size > kMostLine) return false;
  if (const ConvAxis& depth = conv.axes[0]; depth.stride > kMostDirectStride || depth.filter > int32_t(kMostTaps) ||
                                            depth.dilation > kMostDilation || depth.pad_begin > kMostLine)
    return false;
  if (size_of(p.a.dtype) != 2 || p.b.dtype != p.a.dtype || !is_wide_float(p.d.dtype)) return false;
  // A tile's elements are counted in 32 bits.
  if (p.b.stride_row > INT32_MAX / (kMostLines + 1) / conv.axes[2].size) return false;
  if (aligned_channels(p.b, p.b.stride_row) < 8 || p.epilogue.function != nullptr) return false;
  if (is_gated(p) || reduces(p) || p.has_scale_d || p.has_amax || finds_scales(p)) return false;
  const bool splits = p.split_k_mode == SplitKMode::automatic || p.split_k_mode == SplitKMode::parallel;
  const bool wanted = p.kernel == KernelFamily::automatic || p.kernel == KernelFamily::direct;
  return wanted && (splits || p.split_k_mode == SplitKMode::none) && device.compute_capability >= 80;
}

/// But for how a line is cut.
GemmConfig spread_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, 8);
  c.direct.method = DirectMethod::spread;
  c.direct.group = 1;
  c.direct.depth = direct_axis(Conv::wgrad, p.conv.axes[0]);
  c.operands.a_major = c.operands.b_major = Major::mn;
  c.schedule.split = spec.split;
  c.cluster.k = spec.cluster_k;
  c.warps = {.m = kParts, .n = 1};
  while (c.warps.n * kParts < kWarps && tap_blocks(c) > (c.warps.n == 1 ? kMostOfAll : kMostBlocks)) c.warps.n *= 2;
  c.warps.k = kWarps / kParts / c.warps.n;
  return c;
}

/// Filters of a CTA: all, unless their columns are too many for its warps.
uint32_t filters_of(const ConvLayout& conv) {
  const int64_t most = std::max<int64_t>(kWarps / kParts * kMostBlocks * 8 / taps(conv), 1);
  return ceil_div(uint32_t(conv.filters), even_parts(uint32_t(conv.filters), uint32_t(ceil_div(conv.filters, most))));
}

/// How tiles share an image: those along a line, and its lines.
struct Cut {
  uint32_t strips = 0;
  uint32_t columns = 0, rows = 0;

  int64_t tiles() const { return int64_t(columns) * rows; }
};

/// The fewest tiles, the widest of those; without strips, if nothing fits.
Cut cut_of(GemmConfig c, const ConvLayout& conv, const DeviceInfo& device) {
  Cut best;
  for (const uint32_t strips : {4u, 2u, 1u}) {
    c.direct.strips = strips;
    if (2 * tap_lines(c) > kMostLines || smem_plan(c).bytes > uint32_t(device.shared_memory_per_block)) continue;
    const Cut cut{.strips = strips,
                  .columns = ceil_div(uint32_t(conv.axes[2].size), tap_width(c)),
                  .rows = ceil_div(uint32_t(conv.axes[1].size), 2 * tap_lines(c))};
    if (best.strips == 0 || cut.tiles() < best.tiles()) best = cut;
  }
  return best;
}

int64_t tiles_of(const Cut& cut, const ConvLayout& conv) {
  return cut.tiles() * conv.images * conv.axes[0].size;
}

uint32_t blocks_of(const GemmProblem& p, const GemmConfig& c) {
  return ceil_div(uint32_t(p.conv.channels), kSpreadChannels) * ceil_div(uint32_t(p.conv.filters), c.tile.n);
}

}  // namespace

std::optional<Spec> direct_spread_wgrad_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p, device)) return std::nullopt;
  FastestSpec fastest(p, device, make_direct_spread_wgrad_choice, predict_direct_spread_wgrad_us);
  for (const uint32_t m : kTileSizes) {
    const Spec whole{.family = KernelFamily::direct, .tile_m = m, .tile_n = filters_of(p.conv)};
    GemmConfig c = spread_config(p, whole);
    const Cut cut = cut_of(c, p.conv, device);
    if (cut.strips == 0) continue;
    c.direct.strips = cut.strips;
    const int64_t tiles = tiles_of(cut, p.conv);
    for (const Spec& spec : sliced_specs(p, device, whole, blocks_of(p, c), tiles, ctas_of_sm(c), Deal::turns))
      fastest.offer(spec);
  }
  return fastest.spec();
}

std::optional<Choice> make_direct_spread_wgrad_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                      const Spec& spec) {
  if (!is_served(problem, device) || spec.tile_n != filters_of(problem.conv)) return std::nullopt;
  if (std::ranges::find(kTileSizes, spec.tile_m) == std::end(kTileSizes)) return std::nullopt;
  if (!has_slices(spec, device)) return std::nullopt;
  Choice choice{.spec = spec, .problem = problem, .rows_of_d = problem.m};
  GemmConfig& c = choice.config = spread_config(problem, spec);
  if (tap_blocks(c) > kMostOfAll) return std::nullopt;
  const Cut cut = cut_of(c, problem.conv, device);
  if (cut.strips == 0) return std::nullopt;
  c.direct.strips = cut.strips;
  if (!can_meet(c)) return std::nullopt;
  if (!deal_slices(choice, tiles_of(cut, problem.conv), blocks_of(problem, c))) return std::nullopt;
  return choice;
}

DirectShape direct_spread_wgrad_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_images(conv);
  shape.channels = uint32_t(conv.channels);
  shape.blocks = FastDivmod(blocks_of(choice.problem, c));
  shape.columns = FastDivmod(ceil_div(shape.gathered[1], tap_width(c)));
  shape.rows = FastDivmod(ceil_div(shape.gathered[0], 2 * tap_lines(c)));
  shape.tiles = choice.most_tiles;
  shape.met_depth = uint32_t(outputs(conv.axes[0]));
  shape.pad_depth = conv.axes[0].pad_begin;
  shape.depths = FastDivmod(uint32_t(conv.axes[0].size));
  return shape;
}

double predict_direct_spread_wgrad_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const double steps = double(c.tile.m) / 16 / c.warps.k, fills = ceil_div(tap_filled(c), kDirectThreads);
  const auto [beside, turns] = turns_of(choice, ctas_of_sm(c), device);
  const double tile = (steps * (c.warps.n > 1 ? kSharedUs : kStepUs) + fills * kFillUs) * (1 + kBeside * (beside - 1));
  const double busy = turns * (kWaveUs + std::ceil(choice.tiles / choice.blocks) * tile);
  const double memory = gradient_bytes(choice.problem.conv) / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  return kLaunchUs + meeting_us(choice, kMeeting) + std::max(busy, memory);
}

}  // namespace cleave
