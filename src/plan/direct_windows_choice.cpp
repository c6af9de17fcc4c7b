#include "plan/direct_windows_choice.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/smem_plan.h"
#include "cleave/epilogue.h"
#include "launch/conv_view.h"
#include "plan/direct_kernels.h"
#include "plan/function_config.h"
#include "plan/operand_layout.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kMostChannels = 4;
constexpr uint32_t kMostDepth = 256;
constexpr uint32_t kMostColumns = 64;  // of a CTA: a warp's sums
constexpr uint32_t kTileRows = kDirectThreads / 32 * kWindowStrip;

// An H200 took 0.83 to 1.28 of what follows, for 14 layers.
constexpr double kLaunchUs = 4;
constexpr double kMemoryShare = 0.6;
constexpr double kMultiplyAddsPerClock = 512;  // of an SM

GemmConfig windows_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, uint32_t(p.conv.channels));
  const ConvAxis& across = p.conv.axes[2];
  c.direct.windows = true;
  c.direct.width.phase = uint32_t(across.pad_begin * p.conv.channels % 2);
  c.warps = {.m = kDirectThreads / 32, .n = 1};
  const bool whole = size_of(p.d.dtype) == 2 && p.n % 8 == 0 && p.d.stride_row % 8 == 0 && p.d.alignment % 16 == 0;
  c.store.run_bytes = whole ? 16 : 0;
  c.epilogue.c_pairs = c_has_pairs(p, false);
  c.epilogue.function = function_config(p, false);
  // The strips that waste least of a line and of those below it; two, if others are no better.
  const auto made = [&](uint32_t strips) {
    const uint32_t rows = c.warps.m / strips;
    return uint64_t(round_up(pixels_made(Conv::fprop, across), strips * kWindowStrip)) *
           round_up(pixels_made(Conv::fprop, p.conv.axes[1]), rows);
  };
  c.direct.strips = 2;
  for (const uint32_t strips : {4u, 1u, 8u})
    if (made(strips) < made(c.direct.strips)) c.direct.strips = strips;
  return c;
}

bool is_served(const GemmProblem& p, const DeviceInfo& device) {
  const ConvLayout& conv = p.conv;
  if (conv.kind != Conv::fprop || p.batch != 1 || conv.channels > kMostChannels || p.m == 0 || p.k == 0) return false;
  if (conv.axes[0] != ConvAxis{} || (conv.axes[2].dilation > 1 && conv.axes[2].filter > 1)) return false;
  const auto has_16_bits = [](DType type) { return type == DType::f16 || type == DType::bf16; };
  if (!has_16_bits(p.a.dtype) || p.b.dtype != p.a.dtype || !(has_16_bits(p.d.dtype) || p.d.dtype == DType::f32))
    return false;
  // Lines of pixels without gaps are read by words.
  if (p.a.stride_row != conv.channels || conv.axes[2].size * conv.channels % 2 != 0 || p.a.alignment % 4 != 0)
    return false;
  if (is_gated(p) || reduces(p) || p.has_scale_d || p.has_amax || finds_scales(p)) return false;
  const bool split =
      p.split_k_slices > 1 || (p.split_k_mode != SplitKMode::automatic && p.split_k_mode != SplitKMode::none);
  const bool wanted = p.kernel == KernelFamily::automatic || p.kernel == KernelFamily::direct;
  return wanted && !split && device.compute_capability >= 80;
}

uint32_t columns_of(const GemmProblem& p) {
  const uint32_t blocks = ceil_div(uint32_t(p.n), kMostColumns);
  return round_up(ceil_div(uint32_t(p.n), blocks), 16u);
}

}  // namespace

std::optional<Spec> direct_windows_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p, device)) return std::nullopt;
  return Spec{.family = KernelFamily::direct, .tile_m = kTileRows, .tile_n = columns_of(p)};
}

std::optional<Choice> make_direct_windows_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                 const Spec& spec) {
  if (direct_windows_spec(problem, device) != spec) return std::nullopt;  // another cut is another problem's
  Choice choice;
  choice.spec = spec;
  choice.problem = problem;
  choice.geometry = conv_geometry(problem.conv, 1);
  choice.rows_of_d = problem.m;
  const GemmConfig& c = choice.config = windows_config(problem, spec);
  const uint32_t shared = smem_plan(c).bytes;
  if (window_depth(c.direct) > kMostDepth || shared > uint32_t(device.shared_memory_per_block)) return std::nullopt;
  const DirectShape shape = direct_windows_shape(choice);
  const uint64_t tiles =
      uint64_t(shape.blocks.divisor) * shape.columns.divisor * shape.rows.divisor * problem.conv.images;
  if (tiles > INT32_MAX || problem.m > INT32_MAX) return std::nullopt;
  // A CTA's tiles have the same filters.
  const uint32_t blocks = shape.blocks.divisor, resident = uint32_t(device.num_sms) * resident_ctas(c);
  choice.blocks = uint32_t(std::min<uint64_t>(tiles, std::max(resident / blocks, 1u) * blocks));
  choice.tiles = double(tiles);
  choice.most_tiles = uint32_t(tiles);
  return choice;
}

DirectShape direct_windows_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  DirectShape shape = direct_images(choice.problem.conv);
  shape.channels = uint32_t(choice.problem.n);
  shape.blocks = FastDivmod(ceil_div(shape.channels, c.tile.n));
  shape.columns = FastDivmod(ceil_div(shape.made[1], c.direct.strips * kWindowStrip));
  shape.rows = FastDivmod(ceil_div(shape.made[0], window_rows(c)));
  shape.tiles =
      shape.blocks.divisor * shape.columns.divisor * shape.rows.divisor * uint32_t(choice.problem.conv.images);
  return shape;
}

double predict_direct_windows_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const double waves = std::ceil(choice.tiles / choice.blocks) * choice.blocks;  // of tiles
  const double multiply_adds = waves * c.tile.m * c.tile.n * window_depth(c.direct);
  const double running = std::min(1.0, double(choice.blocks) / (device.num_sms * resident_ctas(c)));
  const double multiply = multiply_adds / (device.num_sms * running * kMultiplyAddsPerClock * device.clock_ghz * 1e3);
  const double memory = minimum_bytes(choice.problem) / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  return kLaunchUs + std::max(multiply, memory);
}

}  // namespace cleave
