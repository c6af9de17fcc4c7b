#include "plan/direct/windows.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue.h"
#include "plan/choice/function_config.h"
#include "plan/choice/operand_layout.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "plan/direct/shift.h"
#include "plan/direct/slices.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kMostChannels = 16, kMostOfGradients = 4;  // gathered; wgrad
constexpr uint32_t kMostDepth = 256;
constexpr int32_t kMostStep = 32;           // stride, dilation: what lines take is then counted in 32 bits,
constexpr int64_t kMostPadded = 1ll << 28;  // and so are the elements of one
constexpr uint32_t kMostFilters = 64;       // of a CTA: registers for their sums
constexpr uint32_t kMostRowBlocks = 3;      // wgrad: of a warp
constexpr uint32_t kWarps = kDirectThreads / 32, kTileRows = kWarps * kWindowStrip;

// Outputs, and data gradients: an H200 took 0.78 to 1.29 of what follows, for 33 layers, before the factors by which
// predictions of the kernels that gather are below what those take.
constexpr double kLaunchUs = 4;
constexpr double kMemoryShare = 0.6;
constexpr double kMultiplyAddsPerClock = 512;  // of an SM
constexpr double kRivalFactor = 0.8, kRivalFactorOfGradients = 0.62;
// Weight gradients: 0.94 to 1.2 for 7 layers, before the factor by which predictions of the kernel that competes, which
// gathers, are below what it takes; how slices meet is fitted to 8 other layers.
constexpr double kGradientUs = 16.4;  // with the first tile's loads, and the sums of a CTA's warps
constexpr double kTileUs = 1.36;      // of a CTA, and
constexpr double kLoadUs = 0.00065;   // for each load of shared memory by a warp;
constexpr double kBeside = 0.55;      // more of both, for another CTA on the SM
constexpr MeetingCosts kMeeting = {
    .cluster = 0, .clusters = 0, .clusters_factor = 0.25, .slices = 1.27, .slices_factor = 0.44};
constexpr double kGatherFactor = 0.9;

/// The images that windows are of, and the filters.
const MatrixLayout& images_of(const GemmProblem& p) {
  return p.conv.kind == Conv::wgrad ? p.b : p.a;
}
int64_t filters_of(const GemmProblem& p) {
  return p.conv.kind == Conv::wgrad ? p.m : p.n;
}

/// Lines of pixels that a CTA makes.
uint32_t rows_of_tile(uint32_t strips) {
  return kWarps / strips;
}

/// Along a line and down, in strips and lines of a CTA: those that waste least; two strips, if others are no better.
uint32_t strips_of(const ConvLayout& conv) {
  const auto made = [&](uint32_t strips) {
    return uint64_t(round_up(pixels_made(conv.kind, conv.axes[2]), strips * kWindowStrip)) *
           round_up(pixels_made(conv.kind, conv.axes[1]), rows_of_tile(strips));
  };
  uint32_t best = 2;
  for (const uint32_t strips : {4u, 1u, 8u})
    if (made(strips) < made(best)) best = strips;
  return best;
}

/// Whether numbers of 32 bits reach along the axis.
bool is_countable(const ConvAxis& axis) {
  const bool steps = axis.stride <= kMostStep && (axis.filter == 1 || axis.dilation <= kMostStep);
  return steps && axis.filter <= int32_t(kMostDepth) &&
         int64_t(axis.size) + axis.pad_begin + axis.pad_end <= kMostPadded;
}

GemmConfig windows_config(const GemmProblem& p, const Spec& spec) {
  const int64_t channels = gathered_group(p.conv);
  GemmConfig c = direct_config(p, spec, uint32_t(channels));
  c.direct.method = DirectMethod::windows;
  c.direct.group = uint32_t(channels);
  c.direct.height.phase = 0;
  c.direct.depth = direct_axis(p.conv.kind, p.conv.axes[0]);
  c.direct.width.phase = uint32_t(padding_before(p.conv.kind, p.conv.axes[2]) * channels & 1);
  c.direct.strips = strips_of(p.conv);
  if (p.conv.kind == Conv::wgrad) {
    c.operands.a_major = c.operands.b_major = Major::mn;
    c.schedule.split = spec.split;
    c.cluster.k = spec.cluster_k;
    c.warps = {.m = 1, .n = 1};
    while (c.warps.m < kWarps && window_row_blocks(c) > kMostRowBlocks) c.warps.m *= 2;
    c.warps.k = kWarps / c.warps.m;
    return c;
  }
  c.operands.b_major = p.conv.kind == Conv::fprop ? Major::k : Major::mn;
  c.warps = {.m = kWarps, .n = 1};
  const bool whole = size_of(p.d.dtype) == 2 && p.n % 8 == 0 && p.d.stride_row % 8 == 0 && p.d.alignment % 16 == 0;
  c.store.run_bytes = whole ? 16 : 0;
  c.epilogue.c_pairs = c_has_pairs(p, false);
  c.epilogue.function = function_config(p, false);
  return c;
}

bool is_served(const GemmProblem& p, const DeviceInfo& device) {
  const ConvLayout& conv = p.conv;
  const bool back = conv.kind == Conv::wgrad;
  const int64_t channels = gathered_group(conv);
  if (conv.kind == Conv::none || p.batch != 1 || channels > (back ? kMostOfGradients : kMostChannels)) return false;
  const auto is_strided = [](const ConvAxis& axis) { return axis.stride > 1; };
  if (conv.kind == Conv::dgrad && std::ranges::any_of(conv.axes, is_strided)) return false;
  if (p.m == 0 || p.n == 0 || p.k == 0) return false;
  if ((back && conv.axes[0] != ConvAxis{}) || (conv.axes[2].dilation > 1 && conv.axes[2].filter > 1)) return false;
  if (!std::ranges::all_of(conv.axes, is_countable)) return false;
  if (size_of(p.a.dtype) != 2 || p.b.dtype != p.a.dtype || !is_wide_float(p.d.dtype)) return false;
  // Lines of pixels without gaps are read by words; outputs' gradients by 16 bytes.
  const MatrixLayout& images = images_of(p);
  const int64_t across = conv.kind == Conv::dgrad ? outputs(conv.axes[2]) : conv.axes[2].size;
  if (images.stride_row != channels || across * channels % 2 != 0) return false;
  if (images.alignment % window_piece({.vector = uint32_t(channels)}) != 0) return false;
  if (back && (p.a.stride_col % 8 != 0 || p.a.alignment % 16 != 0 || p.epilogue.function != nullptr)) return false;
  if (is_gated(p) || reduces(p) || p.has_scale_d || p.has_amax || finds_scales(p)) return false;
  const bool splits = p.split_k_mode == SplitKMode::automatic || (back && p.split_k_mode == SplitKMode::parallel);
  if (!splits && p.split_k_mode != SplitKMode::none) return false;
  if (p.split_k_slices > 1 && !back) return false;
  const bool wanted = p.kernel == KernelFamily::automatic || p.kernel == KernelFamily::direct;
  if (channels > kMostOfGradients && direct_shift_spec(p, device)) return false;  // whose tiles have the same names
  return wanted && device.compute_capability >= 80;
}

/// Its tile; weight gradients in one piece.
Spec whole_spec(const GemmProblem& p) {
  const auto filters = uint32_t(filters_of(p)), blocks = ceil_div(filters, kMostFilters);
  return {.family = KernelFamily::direct, .tile_m = kTileRows, .tile_n = round_up(ceil_div(filters, blocks), 16u)};
}

/// Tiles of all images, of one block of filters.
int64_t tiles_of(const ConvLayout& conv) {
  const uint32_t strips = strips_of(conv);
  return ceil_div<int64_t>(pixels_made(conv.kind, conv.axes[2]), strips * kWindowStrip) *
         ceil_div<int64_t>(pixels_made(conv.kind, conv.axes[1]), rows_of_tile(strips)) * conv.images *
         (conv.kind == Conv::wgrad ? 1 : pixels_made(conv.kind, conv.axes[0]));
}

}  // namespace

std::optional<Spec> direct_windows_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p, device)) return std::nullopt;
  const Spec whole = whole_spec(p);
  if (p.conv.kind != Conv::wgrad) return whole;
  FastestSpec fastest(p, device, make_direct_windows_choice, predict_direct_windows_us);
  const uint32_t blocks = ceil_div(uint32_t(filters_of(p)), whole.tile_n),
                 room = resident_ctas(windows_config(p, whole));
  for (const Spec& spec : sliced_specs(p, device, whole, blocks, tiles_of(p.conv), room, Deal::turns))
    fastest.offer(spec);
  return fastest.spec();
}

std::optional<Choice> make_direct_windows_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                 const Spec& spec) {
  if (!is_served(problem, device)) return std::nullopt;
  const Spec own = whole_spec(problem);
  const bool back = problem.conv.kind == Conv::wgrad;
  if (spec.tile_m != own.tile_m || spec.tile_n != own.tile_n) return std::nullopt;  // another problem's
  if (!has_slices(spec, device) || spec.slices > (back ? tiles_of(problem.conv) : 1)) return std::nullopt;
  Choice choice;
  choice.spec = spec;
  choice.problem = problem;
  choice.rows_of_d = problem.m;
  const GemmConfig& c = choice.config = windows_config(problem, spec);
  if (!can_meet(c)) return std::nullopt;
  if (window_depth(c.direct) > kMostDepth || smem_plan(c).bytes > uint32_t(device.shared_memory_per_block))
    return std::nullopt;
  const uint32_t blocks = ceil_div(uint32_t(filters_of(problem)), c.tile.n);
  const int64_t tiles = blocks * tiles_of(problem.conv);
  if (tiles > INT32_MAX || problem.m > INT32_MAX || problem.k > INT32_MAX) return std::nullopt;
  deal_tiles(choice, tiles, blocks, back ? blocks * spec.slices : uint32_t(device.num_sms) * resident_ctas(c));
  reserve_slices(choice, blocks, spec.slices);
  return choice;
}

DirectShape direct_windows_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_padded_images(conv);
  shape.channels = uint32_t(filters_of(choice.problem));
  shape.blocks = FastDivmod(ceil_div(shape.channels, c.tile.n));
  shape.columns = FastDivmod(ceil_div(shape.made[1], c.direct.strips * kWindowStrip));
  shape.rows = FastDivmod(ceil_div(shape.made[0], window_rows(c)));
  shape.tiles = choice.most_tiles;
  return shape;
}

double predict_direct_windows_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const double tiles_of_cta = std::ceil(choice.tiles / choice.blocks);
  const double memory = minimum_bytes(choice.problem) / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  if (c.conv.kind == Conv::wgrad) {
    const double loads = c.warps.m * (window_row_blocks(c) * 8.0 + c.tile.n / 16.0) * (c.tile.m / 16.0);  // of a tile
    const auto [beside, turns] = turns_of(choice, resident_ctas(c), device);
    const double tiles = tiles_of_cta * turns * (1 + kBeside * (beside - 1)) * (kTileUs + kLoadUs * loads);
    return kGatherFactor * (kGradientUs + meeting_us(choice, kMeeting) + std::max(tiles, memory));
  }
  const double ctas_of_sm = std::ceil(double(choice.blocks) / device.num_sms);
  const double multiply_adds = tiles_of_cta * ctas_of_sm * c.tile.m * c.tile.n * window_depth(c.direct);
  const double us = kLaunchUs + std::max(multiply_adds / (kMultiplyAddsPerClock * device.clock_ghz * 1e3), memory);
  return (c.conv.kind == Conv::dgrad ? kRivalFactorOfGradients : kRivalFactor) * us;
}

}  // namespace cleave
