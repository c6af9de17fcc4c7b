#include "plan/direct/spread.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue.h"
#include "plan/choice/function_config.h"
#include "plan/choice/operand_layout.h"
#include "plan/direct/kernels.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kMostMade = 24;     // of 32, kernels with tiles were ahead
constexpr uint32_t kMostVector = 8;   // channels of a CTA
constexpr uint32_t kMostBlocks = 6;   // of 8 columns of a warp: registers for their sums
constexpr uint32_t kMostStrips = 8;   // of a step, along a line
constexpr uint32_t kMostRows = 256;   // parts of an image's lines
constexpr uint32_t kMostTaps = 1024;  // along an axis; with the dilation, what lines take is counted in 32 bits
constexpr int32_t kMostDilation = 1024;
constexpr int32_t kMostPlanes = 16;      // of a filter, and
constexpr int64_t kMostDepth = 1 << 20;  // of an image, with its padding
constexpr uint32_t kWarps = kDirectThreads / 32;

// By which CTAs are cut: guesses, with which the layers were measured.
constexpr double kTileUs = 2;    // of a CTA: filters, the first loads
constexpr double kStepUs = 0.9;  // that nothing hides
constexpr double kMemoryShare = 0.8;
constexpr double kSharedBytesPerClock = 128 * 0.5;  // of an SM
// An H200 took 0.73 to 1.3 of what follows, for 21 of 25 layers, and up to 1.9 of it, before the factor by which
// predictions of the kernels that compete are below what they take: their tiles would be nearly empty. From 8 channels
// on, where they are not, 39 layers took 0.7 to 3.0 of it, in the middle 1.1 (docs/notes/2026-11-convolution.md).
constexpr double kLaunchUs = 0.3;
constexpr double kRivalFactor = 0.65;
constexpr double kFullFactor = 1.2;
constexpr double kCutFactor = 1.2;
constexpr double kAloneFactor = 1.4;  // where an SM has one CTA, whose loads nothing covers
constexpr double kRoundUs = 0.8;      // of a CTA's filters, but the first
constexpr uint32_t kBytesOfRound = 8192;

/// Divides the channels that are made.
uint32_t channels_of_cta(const ConvLayout& conv) {
  const auto made = uint32_t(made_group(conv));
  uint32_t vector = std::min(made, kMostVector);
  while (made % vector != 0) --vector;
  return vector;
}

/// Planes of all images that are made.
int64_t planes_of(const ConvLayout& conv) {
  return conv.images * pixels_made(conv.kind, conv.axes[0]);
}

/// Along an axis; each is as many pixels as a data gradient's stride.
uint32_t cells_of(Conv kind, const ConvAxis& axis) {
  return ceil_div(pixels_made(kind, axis), uint32_t(axis.stride));
}

bool is_served(const GemmProblem& p, const DeviceInfo& device) {
  const ConvLayout& conv = p.conv;
  const bool forward = conv.kind == Conv::fprop;
  if ((!forward && conv.kind != Conv::dgrad) || p.batch != 1 || made_group(conv) > kMostMade) return false;
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.m > INT32_MAX) return false;
  const ConvAxis& depth = conv.axes[0];
  const bool few_planes = depth.stride == 1 && depth.filter <= kMostPlanes &&
                          int64_t(depth.size) + depth.pad_begin + depth.pad_end <= kMostDepth &&
                          depth.dilation <= kMostDilation;
  if (!few_planes || !are_countable(conv, kMostTaps, kMostDilation)) return false;
  if (size_of(p.a.dtype) != 2 || p.b.dtype != p.a.dtype || !is_wide_float(p.d.dtype)) return false;
  const int64_t gathered = gathered_group(conv);
  if (gathered % 8 != 0 || gathered > UINT16_MAX || aligned_channels(p.a, p.a.stride_row) < 8) return false;
  if (forward && (conv.axes[1].stride > 1 || conv.axes[2].stride > 1 || aligned_channels(p.b, p.b.stride_col) < 8))
    return false;
  if (is_gated(p) || reduces(p) || p.has_scale_d || p.has_amax || finds_scales(p)) return false;
  if (p.split_k_slices > 1 || (p.split_k_mode != SplitKMode::automatic && p.split_k_mode != SplitKMode::none))
    return false;
  const bool wanted = p.kernel == KernelFamily::automatic || p.kernel == KernelFamily::direct;
  return wanted && device.compute_capability >= 80;
}

/// But for how a line is cut.
GemmConfig spread_config(const GemmProblem& p, const Spec& spec) {
  const uint32_t channels = channels_of_cta(p.conv);
  GemmConfig c = direct_config(p, spec, channels);
  c.direct.method = DirectMethod::spread;
  c.direct.group = 1;
  c.direct.depth = direct_axis(p.conv.kind, p.conv.axes[0]);
  c.tile.n = channels;
  c.tile.k = uint32_t(gathered_group(p.conv));
  c.operands.b_major = p.conv.kind == Conv::fprop ? Major::k : Major::mn;
  c.warps = {.m = kWarps, .n = 1};
  while (c.warps.m > 1 && spread_blocks(c) > kMostBlocks) c.warps.m /= 2, c.warps.n *= 2;
  c.tile.m = c.warps.m * kSpreadRows;
  c.store.run_bytes = std::min(common_alignment(channels), aligned_channels(p.d, p.d.stride_row)) * size_of(p.d.dtype);
  c.epilogue.function = function_config(p, false);
  return c;
}

/// How CTAs share the images: strips along a line, and parts of its lines.
struct Cut {
  uint32_t strips = 0;  // of tensor cores' rows
  uint32_t columns = 1, rows = 1;
  double us = std::numeric_limits<double>::infinity();  // predicted
};

uint32_t columns_of(const GemmConfig& c, const ConvLayout& conv) {
  const uint32_t cells = cells_of(conv.kind, conv.axes[2]);
  return even_parts(cells, ceil_div(cells, spread_width(c) - cell_reach(c.conv.kind, c.direct.width)));
}

/// What a tile with `cells` lines of cells takes, where an SM has as many CTAs as `beside`.
double tile_us(const GemmConfig& c, uint32_t cells, uint32_t beside, const DeviceInfo& device) {
  const double pixels = c.tile.m, columns = 8.0 * c.warps.n * spread_blocks(c);
  const double k = double(c.tile.k) * c.direct.depth.taps;
  const double memory = pixels * k * 2 * device.num_sms / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  const double filters = columns * k * 2 * c.warps.m;  // read by each warp
  const double shared = (pixels * spread_columns(c) * 8 + pixels * k * 2 * c.warps.n + filters) /
                        (kSharedBytesPerClock * device.clock_ghz * 1e3);
  const double step = std::max(std::max(memory, shared) * beside, kStepUs + shared);
  return kTileUs + step * ceil_div(cells + cell_reach(c.conv.kind, c.direct.height), spread_lines(c));
}

/// The cheapest; without strips, if nothing fits.
Cut cut_of(GemmConfig c, const ConvLayout& conv, const DeviceInfo& device) {
  const uint32_t lines = cells_of(conv.kind, conv.axes[1]);
  Cut best;
  for (c.direct.strips = 1; c.direct.strips <= kMostStrips && c.tile.m % spread_width(c) == 0; c.direct.strips *= 2) {
    if (spread_width(c) <= cell_reach(c.conv.kind, c.direct.width)) continue;
    if (smem_plan(c).bytes > uint32_t(device.shared_memory_per_block)) continue;
    const uint32_t beside = ctas_of_sm(c), columns = columns_of(c, conv);
    const double strips = double(columns) * double(planes_of(conv)) * double(made_group(conv) / c.tile.n);
    for (uint32_t most = 1; most <= std::min(lines, kMostRows); ++most) {
      const uint32_t rows = even_parts(lines, most);
      const double waves = std::ceil(strips * rows / (double(device.num_sms) * beside));
      const auto sharing = uint32_t(std::min<double>(beside, std::ceil(strips * rows / device.num_sms)));
      const double us = waves * tile_us(c, ceil_div(lines, rows), sharing, device);
      if (us < best.us) best = {.strips = c.direct.strips, .columns = columns, .rows = rows, .us = us};
    }
  }
  return best;
}

}  // namespace

std::optional<Spec> direct_spread_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p, device)) return std::nullopt;
  Spec spec{.family = KernelFamily::direct};
  const GemmConfig c = spread_config(p, spec);
  spec.tile_m = c.tile.m;
  spec.tile_n = c.tile.n;
  return spec;
}

std::optional<Choice> make_direct_spread_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                const Spec& spec) {
  const auto own = direct_spread_spec(problem, device);
  if (!own || *own != spec) return std::nullopt;  // another cut is another problem's
  Choice choice{.spec = spec, .problem = problem, .rows_of_d = problem.m};
  GemmConfig& c = choice.config = spread_config(problem, spec);
  // What would not count in 32 bits.
  if (spread_columns(c) > kMostBlocks * 8 * kWarps || cell_reach(c.conv.kind, c.direct.height) > kMostTaps)
    return std::nullopt;
  const Cut cut = cut_of(c, problem.conv, device);
  if (cut.strips == 0) return std::nullopt;
  c.direct.strips = cut.strips;
  const uint32_t blocks = uint32_t(problem.n) / c.tile.n;
  const uint64_t tiles = uint64_t(blocks) * cut.columns * cut.rows * uint64_t(planes_of(problem.conv));
  if (tiles > INT32_MAX) return std::nullopt;
  choice.blocks = choice.most_tiles = uint32_t(tiles);
  choice.tiles = double(tiles);
  return choice;
}

DirectShape direct_spread_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_images(conv);
  shape.channels = uint32_t(choice.problem.n);
  const uint32_t blocks = shape.channels / c.tile.n, columns = columns_of(c, conv);
  const auto rows = uint32_t(choice.blocks / (uint64_t(blocks) * columns * uint64_t(planes_of(conv))));
  shape.cells[0] = ceil_div(cells_of(conv.kind, conv.axes[1]), rows);
  shape.cells[1] = ceil_div(cells_of(conv.kind, conv.axes[2]), columns);
  shape.blocks = FastDivmod(blocks);
  shape.columns = FastDivmod(columns);
  shape.rows = FastDivmod(rows);
  set_depth(shape, conv);
  return shape;
}

double predict_direct_spread_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  // Stores of a part of a sector take as long as those of a whole one.
  const double pixel = c.tile.n * size_of(c.epilogue.d), sectors = std::min(pixel * c.direct.width.stride / 32, 1.0);
  const bool forward = conv.kind == Conv::fprop;
  const auto image = double(image_pixels(conv)), output = double(output_pixels(conv));
  const double made = (forward ? output : image) * made_group(conv) * size_of(c.epilogue.d) / c.store.run_bytes;
  const double bytes = (forward ? image : output) * gathered_group(conv) * 2 + made * sectors * 32;
  const double memory = bytes / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  const double rounds = ceil_div(spread_filters_bytes(c), kBytesOfRound) - 1;
  const double cut = kCutFactor * cut_of(c, conv, device).us + kRoundUs * rounds;
  const double factor = made_group(conv) < kMostVector ? kRivalFactor : kFullFactor;
  return (ctas_of_sm(c) == 1 ? kAloneFactor : 1) * factor * (kLaunchUs + std::max(cut, memory));
}

}  // namespace cleave
