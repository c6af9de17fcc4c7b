#include "plan/direct/shift.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue.h"
#include "plan/choice/function_config.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "plan/direct/slices.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kMostGroup = 64;     // channels of a group, made or gathered
constexpr int64_t kMostSumTaps = 9;    // wgrad: of a filter, all of which a warp has sums of
constexpr uint32_t kMostEights = 200;  // of K, over all classes: the kernel spells them out
constexpr uint32_t kMostTaps = 64;     // along an axis
constexpr int32_t kMostDilation = 32;
constexpr uint32_t kWarps = kDirectThreads / 32;
constexpr uint32_t kPixelsOfStep = 64;  // that stages grow by: few kernels serve all images' sizes

// Outputs and data gradients: an H200 took 0.8 to 1.3 of what follows, for 32 layers by 8 tiles each. 71 other layers,
// of sums of kLongSum products or more, took 1.25 of it in the middle: so much is added of work, from kShortSum on.
constexpr double kDeepFactor = 0.2, kShortSum = 160, kLongSum = 400;
constexpr double kLaunchUs = 4;
constexpr double kMatrixClocks = 2.9;  // of an SM, for four 8 x 8 matrices to registers
constexpr double kMultiplyClocks = 1.6;
constexpr double kRowClocks = 1.7;           // of an SM, for what a tile's row of 8 columns costs beside
constexpr double kL2BytesPerClock = 24;      // of an SM: pixels,
constexpr double kFilterBytesPerClock = 60;  // and filters
constexpr double kMemoryShare = 0.85;
// Weight gradients: fitted to 249 times of an H200, of which they are 10 % off. A CTA's tile, and each line that its
// warps load, take a while; what they read from shared memory is an SM's. In the end warps of the same sums take turns,
// and a CTA's are put together, in sums_us's unit as what follows; those of slices, and of clusters, meet in memory.
constexpr double kGradientUs = 3.3, kTileClocks = 2000, kLineClocks = 34, kReadClocks = 10.2;
constexpr double kWarpUs = 0.29, kCtaFactor = 1.13;
constexpr double kMeetUs = 2, kSlicesFactor = 1.4, kClusterFactor = 1.2, kClustersFactor = 0.96;

/// Along an axis.
uint32_t cells_of(Conv kind, const ConvAxis& axis) {
  return ceil_div(pixels_made(kind, axis), shift_cell(kind, direct_axis(kind, axis)));
}

/// Whether the groups of all that a weight gradient reads and makes follow each other.
bool gradient_groups_adjoin(const GemmProblem& p) {
  if (p.batch == 1) return true;
  const auto rows_adjoin = [&](const MatrixLayout& of) { return groups_adjoin(of, p.conv.filters * of.stride_row); };
  return groups_adjoin(p.a, p.conv.filters) && groups_adjoin(p.b, p.conv.channels) && rows_adjoin(p.d) &&
         (!p.has_c || rows_adjoin(p.c));
}

/// What weight gradients ask for, and others do not.
bool is_served_gradient(const GemmProblem& p) {
  if (taps(p.conv) > kMostSumTaps || p.epilogue.function != nullptr || !gradient_groups_adjoin(p)) return false;
  if (aligned_channels(p.a, p.a.stride_col) < 8 || aligned_channels(p.b, p.b.stride_row) < 8) return false;
  const bool splits = p.split_k_mode == SplitKMode::automatic || p.split_k_mode == SplitKMode::parallel;
  const bool wanted = p.kernel == KernelFamily::automatic || p.kernel == KernelFamily::direct;
  return wanted && (splits || p.split_k_mode == SplitKMode::none);
}

bool is_served_image(const GemmProblem& p) {
  const int64_t filter = p.conv.kind == Conv::fprop ? p.b.stride_col : p.b.stride_row;
  if (aligned_channels(p.a, p.a.stride_row) < 8 || aligned_channels(p.b, filter) < 8) return false;
  return groups_adjoin(p) && wants_direct(p);
}

bool is_served(const GemmProblem& p, const DeviceInfo& device) {
  const ConvLayout& conv = p.conv;
  if (conv.kind == Conv::none) return false;
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.m > INT32_MAX || conv.images > INT32_MAX) return false;
  const int64_t made = made_group(conv), gathered = gathered_group(conv);
  // Data gradients to 8 channels of one group are another method's (spread.h).
  if (made < (p.batch == 1 ? 16 : 8) || made > kMostGroup || !std::has_single_bit(uint64_t(made))) return false;
  if (gathered % 8 != 0 || gathered > kMostGroup) return false;
  if (conv.axes[0] != ConvAxis{} || !are_countable(conv, kMostTaps, kMostDilation)) return false;
  if (taps(conv) * gathered / 8 > kMostEights) return false;
  if (size_of(p.a.dtype) != 2 || p.b.dtype != p.a.dtype || !is_wide_float(p.d.dtype)) return false;
  if (is_gated(p) || reduces(p) || p.has_scale_d || p.has_amax || finds_scales(p)) return false;
  if (device.compute_capability < 80) return false;
  return conv.kind == Conv::wgrad ? is_served_gradient(p) : is_served_image(p);
}

/// But for what shared memory has room for.
GemmConfig shift_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, 8);
  c.direct.method = DirectMethod::shift;
  c.direct.group = uint32_t(made_group(p.conv));
  c.tile.k = uint32_t(gathered_group(p.conv));
  if (p.conv.kind == Conv::wgrad) {
    c.operands.a_major = c.operands.b_major = Major::mn;
    c.schedule.split = spec.split;
    c.cluster.k = spec.cluster_k;
    c.warps = {.m = spec.tile_n / 16 * shift_wgrad_parts(c), .n = 1};
    c.warps.k = kWarps / std::max(c.warps.m, 1u);
    return c;
  }
  c.operands.b_major = p.conv.kind == Conv::fprop ? Major::k : Major::mn;
  c.epilogue.function = function_config(p, false);
  const uint32_t blocks = std::min(spec.tile_n / 8, 4u);
  c.warps.n = spec.tile_n / 8 / blocks;
  c.warps.m = kWarps / c.warps.n;
  c.store.run_bytes = std::min(8u, aligned_channels(p.d, p.d.stride_row)) * size_of(p.d.dtype);
  return c;
}

/// Whether warps share a tile of such sizes.
bool is_tile(const Spec& spec, const ConvLayout& conv) {
  const uint32_t n = spec.tile_n, blocks = std::min(n / 8, 4u);
  if (n < std::max<int64_t>(made_group(conv), 8) || n > 8 * 4 * kWarps || !std::has_single_bit(n)) return false;
  if (conv.kind == Conv::wgrad) return n >= 16 && (spec.tile_m == 128 || spec.tile_m == 256);
  const uint32_t of_row = kWarps / (n / 8 / blocks) * 16, rows = spec.tile_m / of_row;  // of a warp, in blocks
  return spec.tile_m % of_row == 0 && (rows == 1 || rows == 2 || rows == 4) && rows * blocks % 2 == 0;
}

/// Clocks of an SM that a tile takes: its products, and what it loads.
double multiply_clocks(const GemmConfig& c) {
  uint32_t steps = 0;
  for (uint32_t i = 0; i < shift_classes(c); ++i) steps += ceil_div(shift_eights(c, i), 2u);
  const double rows = shift_row_blocks(c), blocks = shift_blocks(c);
  const double groups = std::max(blocks * 8 / c.direct.group, 1.0);
  const double step =
      std::max((rows * groups + std::ceil(blocks / 2)) * kMatrixClocks, rows * blocks * kMultiplyClocks);
  return kWarps * steps * step + shift_classes(c) * c.tile.m * c.tile.n / 8 * kRowClocks;
}
double load_clocks(const GemmConfig& c, uint32_t pixels) {
  return double(pixels) * shift_channels(c) * 2 / kL2BytesPerClock;
}

/// How tiles share the images: cells of each, down and along a line, and images.
struct Cut {
  uint32_t cells[2] = {}, together = 1;
  uint32_t rows = 0, columns = 0, images = 0;  // tiles
  uint32_t pixels = 0;                         // gathered, of a tile
  double clocks = std::numeric_limits<double>::infinity();

  int64_t tiles() const { return int64_t(rows) * columns * images; }
};

/// wgrad: a tile's, with so many CTAs beside each other on an SM.
double gradient_clocks(const GemmConfig& c, const Cut& cut, double beside) {
  const DirectAxis& down = c.direct.height;
  const double lines = cut.together * (shift_reach(c.conv.kind, down, cut.cells[0]) + cut.cells[0]);
  const double steps = c.warps.m * ceil_div(cut.together * ceil_div(cut.cells[1], 8u), 2u) * cut.cells[0];
  const double reads = 1 + (down.taps - shift_kept(down)) * c.direct.width.taps;
  return kTileClocks + kLineClocks * lines + beside * kReadClocks * steps * reads;
}

/// The one that takes least, in all.
Cut cut_of(const GemmConfig& c, const ConvLayout& conv) {
  const uint32_t down = cells_of(conv.kind, conv.axes[1]), across = cells_of(conv.kind, conv.axes[2]);
  const uint32_t least = ceil_div(across, c.tile.m);
  const bool back = conv.kind == Conv::wgrad;
  const double multiply = back ? 0 : multiply_clocks(c);
  Cut best;
  for (uint32_t most = least; most <= across && most <= least + 64; ++most) {
    Cut cut{.columns = even_parts(across, most)};
    cut.cells[1] = ceil_div(across, cut.columns);
    const uint32_t width = back ? round_up(cut.cells[1], 8u) : cut.cells[1];  // whole strips
    if (width > c.tile.m) continue;
    cut.rows = even_parts(down, ceil_div(down, std::min(down, c.tile.m / width)));
    cut.cells[0] = ceil_div(down, cut.rows);
    const auto images = uint32_t(conv.images);
    if (cut.rows == 1 && cut.columns == 1)
      cut.together = ceil_div(images, ceil_div(images, c.tile.m / (cut.cells[0] * width)));
    cut.images = ceil_div(images, cut.together);
    DirectShape shape;
    shape.cells[0] = cut.cells[0], shape.cells[1] = cut.cells[1], shape.together = cut.together;
    cut.pixels = shift_pixels(c, shape);
    cut.clocks = double(cut.tiles()) * (back ? gradient_clocks(c, cut, 2) : multiply + load_clocks(c, cut.pixels));
    if (cut.clocks < best.clocks) best = cut;
  }
  return best;
}

uint32_t blocks_of(const GemmProblem& p, const GemmConfig& c) {
  return ceil_div(uint32_t(p.batch * made_group(p.conv)), c.tile.n);
}

/// Those of all groups that D has.
uint32_t channels_of(const Choice& choice) {
  return uint32_t(choice.problem.conv.kind == Conv::wgrad ? choice.problem.m : choice.problem.n);
}

uint32_t room_of(const GemmConfig& c) {
  return std::max(ctas_of_sm(c), 1u);
}

/// wgrad: as many as fill the GPU, or one cluster, each with a tile at least. False if there are none.
bool set_slices(const GemmProblem& p, const DeviceInfo& device, uint32_t together, bool alone, Spec& spec) {
  if (p.split_k_mode == SplitKMode::none || !is_tile(spec, p.conv)) return together == 1;
  GemmConfig c = shift_config(p, spec);
  const Cut cut = cut_of(c, p.conv);
  c.direct.pixels = round_up(cut.pixels, kPixelsOfStep);
  const uint32_t clusters = alone ? 1 : uint32_t(clusters_at_once(together, room_of(c), device)) / blocks_of(p, c);
  const int64_t most = std::min<int64_t>(std::max(clusters, 1u) * together, cut.tiles());
  const int64_t even = even_parts(cut.tiles(), most);  // none has more tiles than another wants
  const int64_t slices =
      p.split_k_slices > 0 ? std::min<int64_t>(p.split_k_slices, cut.tiles()) : round_up(even, int64_t(together));
  if (slices < together || slices > cut.tiles() || slices % together != 0) return false;
  spec.slices = uint32_t(slices);
  spec.cluster_k = together;
  if (spec.slices > 1) spec.split = SplitKMode::parallel;
  return true;
}

double slices_us(const Choice& choice) {
  const uint32_t slices = choice.spec.slices, together = choice.spec.cluster_k, clusters = slices / together;
  if (slices == 1) return 0;
  if (together == 1) return kMeetUs + kSlicesFactor * slice_sums_us(choice);
  const double in_memory = clusters > 1 ? kMeetUs + kClustersFactor * clusters / together * sums_us(choice) : 0;
  return kClusterFactor * sums_us(choice) + in_memory;
}

double predict_gradient_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  const auto [beside, turns] = turns_of(choice, room_of(c), device);
  const double tiles = std::ceil(choice.tiles / choice.blocks) * turns;
  const double busy = tiles * gradient_clocks(c, cut_of(c, conv), beside) / (device.clock_ghz * 1e3);
  const double memory =
      gradient_bytes(conv) * choice.problem.m / conv.filters / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  const double sums = kWarpUs * c.warps.k + kCtaFactor * beside * sums_us(choice);
  return kGradientUs + sums + slices_us(choice) + std::max(busy, memory);
}

}  // namespace

std::optional<Spec> direct_shift_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p, device)) return std::nullopt;
  FastestSpec fastest(p, device, make_direct_shift_choice, predict_direct_shift_us);
  const int64_t channels = p.batch * made_group(p.conv);
  const bool back = p.conv.kind == Conv::wgrad;
  for (const uint32_t n : {64u, 32u, 16u, 8u}) {
    // Narrower ones read half of a sector and of a line.
    if (n > std::bit_ceil(uint64_t(channels)) || (n < 32 && int64_t(n) < channels)) continue;
    for (uint32_t m = 16; m <= 16 * 4 * kWarps; m *= 2) {
      const Spec spec{.family = KernelFamily::direct, .tile_m = m, .tile_n = n};
      for (const uint32_t together : {1u, 2u, 3u, 4u, 6u, 8u}) {
        for (const bool alone : {false, true}) {
          if ((together > 1 || alone) && !back) break;
          Spec own = spec;
          if (back && !set_slices(p, device, together, alone, own)) continue;
          fastest.offer(own);
        }
      }
    }
  }
  return fastest.spec();
}

std::optional<Choice> make_direct_shift_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  // A tuned file's tile may be anything.
  if (!is_tile(spec, problem.conv) || !is_served(problem, device)) return std::nullopt;
  const bool back = problem.conv.kind == Conv::wgrad;
  if (!has_slices(spec, device) || (spec.slices > 1 && !back)) return std::nullopt;
  Choice choice{.spec = spec, .problem = problem};
  GemmProblem& p = choice.problem;
  (back ? p.m : p.n) *= p.batch;
  p.batch = 1;
  choice.rows_of_d = p.m;
  GemmConfig& c = choice.config = shift_config(problem, spec);
  if (c.warps.k * c.warps.m != kWarps && back) return std::nullopt;
  const Cut cut = cut_of(c, problem.conv);
  if (!back && shift_row_blocks(c) > 2 && shift_classes(c) > 1) return std::nullopt;  // registers
  if (cut.pixels > kSharedLimit / 16) return std::nullopt;                            // what would not count in 32 bits
  c.direct.pixels = round_up(cut.pixels, kPixelsOfStep);
  if (smem_plan(c).bytes > uint32_t(device.shared_memory_per_block)) return std::nullopt;
  const uint32_t blocks = blocks_of(problem, c);
  const int64_t tiles = cut.tiles() * blocks;
  if (tiles > INT32_MAX || spec.slices > cut.tiles()) return std::nullopt;
  deal_tiles(choice, tiles, blocks, back ? blocks * spec.slices : uint32_t(device.num_sms) * ctas_of_sm(c));
  reserve_slices(choice, blocks, spec.slices);
  return choice;
}

DirectShape direct_shift_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  const Cut cut = cut_of(c, conv);
  DirectShape shape = direct_images(conv);
  shape.channels = channels_of(choice);
  shape.cells[0] = cut.cells[0];
  shape.cells[1] = cut.cells[1];
  shape.together = cut.together;
  shape.images = uint32_t(conv.images);
  shape.blocks = FastDivmod(ceil_div(shape.channels, c.tile.n));
  shape.columns = FastDivmod(cut.columns);
  shape.rows = FastDivmod(cut.rows);
  shape.tiles = choice.most_tiles;
  return shape;
}

double predict_direct_shift_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  if (conv.kind == Conv::wgrad) return predict_gradient_us(choice, device);
  const double clock = device.clock_ghz * 1e3;
  const double multiply = multiply_clocks(c) / clock;
  const double load = load_clocks(c, cut_of(c, conv).pixels) / clock;
  const double filters = shift_filters_bytes(c) / kFilterBytesPerClock / clock;
  const double beside = std::ceil(double(choice.blocks) / device.num_sms);
  const double tiles = std::ceil(choice.tiles / choice.blocks) * beside;
  const bool gathers_outputs = conv.kind == Conv::dgrad;
  const double made = double(gathers_outputs ? image_pixels(conv) : output_pixels(conv)) * size_of(c.epilogue.d);
  const double gathered = double(gathers_outputs ? output_pixels(conv) : image_pixels(conv)) * 2 / c.direct.group;
  const double bytes = (made + gathered * c.tile.k) * channels_of(choice);
  const double memory = bytes / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  const double sum = double(taps(conv)) * double(gathered_group(conv));
  const double deep = 1 + kDeepFactor * std::clamp((sum - kShortSum) / (kLongSum - kShortSum), 0.0, 1.0);
  return kLaunchUs + beside * filters + std::max(tiles * (multiply + load) * deep, memory);
}

}  // namespace cleave
