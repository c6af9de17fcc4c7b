#include "plan/direct/staged_wgrad.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cleave/config/direct_staged_wgrad.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv/direct_conv.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "plan/direct/slices.h"
#include "plan/direct/wgrad.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kChannels[] = {8, 16, 32};  // of a CTA: with 64 an H200 took 10 to 30 % longer
constexpr uint32_t kLeastTaps = 6;             // along a line
constexpr uint32_t kMostStrip = 16;
constexpr uint32_t kMostAhead = 8;
constexpr uint32_t kMostRegisters = 96;  // of 128: sums, and a strip's gradients and a pixel as float32
constexpr uint32_t kAhead = 2;           // with 1 it took as long
constexpr uint32_t kLeastCtas = 2;       // of an SM: alone, one issues too little
constexpr uint32_t kCopied = 16;         // bytes at once
constexpr int32_t kMostDilation = 8;

// Fitted to 330 times of 11 layers on an H200, of which the fastest cuts are 8 % off; 11 times of larger ones are 0.88
// to 1.21 of what they took (docs/notes/2026-11-convolution.md).
constexpr double kLineClocks = 283;  // of a line that waits, if no other CTA has the SM meanwhile
constexpr double kMultiplyInstructions = 0.92, kLineInstructions = 122;
constexpr double kFirstClocks = 1170, kFirstBytesPerClock = 100;  // until a column's first lines are there
constexpr GradientCosts kCosts = {
    .launch = 0.84,
    .meeting = {.cluster = 2.36, .clusters = 1.41, .clusters_factor = 1.51, .slices = 3.95, .slices_factor = 1.95},
    .turn = 0.16,
    .memory_share = 0.618,
    .beside = 0.79};

GemmConfig staged_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, tap_line_vector(p));
  c.direct.method = DirectMethod::staged;
  c.tile.stages = 1 + spec.ahead;
  c.operands.a_major = c.operands.b_major = Major::mn;
  c.schedule.split = spec.split;
  c.cluster.k = spec.cluster_k;
  return c;
}

uint32_t pixels_of_strip(const GemmConfig& c) {
  return gathered_span(Conv::wgrad, c.direct.width, c.tile.m).size();
}
uint32_t strips_of_line(const GemmProblem& p, const GemmConfig& c) {
  return ceil_div(uint32_t(outputs(p.conv.axes[2])), c.tile.m);
}

uint32_t blocks_of(const GemmProblem& p, const GemmConfig& c) {
  return ceil_div(uint32_t(p.batch * p.conv.channels), c.tile.n);
}

/// Lines of all columns of strips.
int64_t lines_of(const GemmProblem& p, const GemmConfig& c) {
  return ceil_div<int64_t>(p.conv.images * strips_of_line(p, c), direct_places(c)) * outputs(p.conv.axes[1]);
}

/// Whether 32 bits count the bytes of all images that a CTA's strips meet.
bool are_near(const GemmProblem& p, const GemmConfig& c) {
  const uint32_t images = 1 + ceil_div(direct_places(c) - 1, strips_of_line(p, c));
  const auto are = [&](double lines, double pixels, int64_t stride) {
    return images * lines * pixels * double(stride) * size_of(p.a.dtype) < UINT32_MAX;
  };
  const ConvAxis &down = p.conv.axes[1], &across = p.conv.axes[2];
  return are(double(outputs(down)), double(outputs(across)), p.a.stride_col) &&
         are(down.size, across.size, p.b.stride_row);
}

bool is_served(const GemmProblem& p) {
  if (!serves_tap_lines(p) || !are_countable(p.conv, kMostGradientTaps, kMostDilation)) return false;
  const uint32_t piece = kCopied / size_of(p.a.dtype);
  return p.batch * p.conv.channels % piece == 0 && aligned_channels(p.a, p.a.stride_col) >= piece &&
         aligned_channels(p.b, p.b.stride_row) >= piece;
}

/// Whether threads, registers and shared memory suffice. A tuned file's spec may be anything.
bool is_cut(const GemmProblem& p, const DeviceInfo& device, const Spec& spec, GemmConfig& c) {
  const Spec own{.family = KernelFamily::direct,
                 .tile_m = spec.tile_m,
                 .tile_n = spec.tile_n,
                 .ahead = spec.ahead,
                 .split = spec.split,
                 .slices = spec.slices,
                 .cluster_k = spec.cluster_k};
  if (spec != own || !has_slices(spec, device)) return false;
  if (spec.tile_m == 0 || spec.tile_m > kMostStrip || spec.ahead == 0 || spec.ahead > kMostAhead) return false;
  const uint32_t vector = tap_line_vector(p);
  if (spec.tile_n == 0 || spec.tile_n * size_of(p.a.dtype) % kCopied != 0 || spec.tile_n > kDirectThreads * vector)
    return false;
  c = staged_config(p, spec);
  if (vector % c.direct.group != 0 || spec.tile_n % vector != 0 || direct_places(c) == 0) return false;
  if (!can_meet(c)) return false;
  if (direct_sums(c) + (c.tile.m + 1) * vector > kMostRegisters) return false;
  if (pixels_of_strip(c) < staged_step(c) || !are_near(p, c)) return false;
  c.direct.pixels = staged_line_pixels(c, strips_of_line(p, c));
  return smem_plan(c).bytes <= uint32_t(device.shared_memory_per_block);
}

/// Strips that were ahead of the other kernels wherever they were measured. The model tells two of them apart, but not
/// all: of 10 and 13 outputs, and of 10 at stride 2, an H200 took 13 to 18 % longer than it took before.
std::vector<uint32_t> strips_of(const GemmProblem& p) {
  const ConvAxis& across = p.conv.axes[2];
  const auto longest = uint32_t(outputs(across));
  if (longest < 7) return {};
  if (across.filter > 9 && longest >= 11) return {11};
  const bool wide = across.filter <= 7 && across.stride == 1 && size_of(p.a.dtype) == 2 && longest >= 14;
  return wide ? std::vector<uint32_t>{7, 14} : std::vector<uint32_t>{7};
}

}  // namespace

std::optional<Spec> direct_staged_wgrad_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p) || uint32_t(p.conv.axes[2].filter) < kLeastTaps) return std::nullopt;
  const uint32_t channels = uint32_t(p.batch * p.conv.channels);
  FastestSpec fastest(p, device, make_direct_staged_wgrad_choice, predict_direct_staged_wgrad_us);
  for (const uint32_t strip : strips_of(p)) {
    for (const uint32_t most : kChannels) {
      const uint32_t n = round_up(ceil_div(channels, ceil_div(channels, most)), kCopied / size_of(p.a.dtype));
      const Spec spec{.family = KernelFamily::direct, .tile_m = strip, .tile_n = n, .ahead = kAhead};
      GemmConfig c;
      if (!is_cut(p, device, spec, c) || ctas_of_sm(c) < kLeastCtas) continue;
      for (const Spec& own : sliced_specs(p, device, spec, blocks_of(p, c), lines_of(p, c), kLeastCtas, Deal::runs)) {
        fastest.offer(own);
      }
    }
  }
  return fastest.spec();
}

std::optional<Choice> make_direct_staged_wgrad_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                      const Spec& spec) {
  if (!is_served(problem)) return std::nullopt;
  Choice choice{.spec = spec, .problem = problem};
  GemmConfig& c = choice.config;
  if (!is_cut(problem, device, spec, c)) return std::nullopt;
  const int64_t lines = lines_of(problem, c);
  const uint32_t blocks = blocks_of(problem, c);
  if (lines > INT32_MAX || uint64_t(blocks) * spec.slices > INT32_MAX) return std::nullopt;
  if (has_empty_slices(spec, lines)) return std::nullopt;
  choice.problem.m *= problem.batch;  // filters of all groups
  choice.problem.batch = 1;
  choice.blocks = blocks * spec.slices;
  choice.tiles = double(blocks);
  choice.most_tiles = blocks;
  reserve_slices(choice, blocks, spec.slices);
  return choice;
}

DirectShape direct_staged_wgrad_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const GemmProblem& p = choice.problem;
  DirectShape shape = direct_images(p.conv);
  shape.channels = uint32_t(p.m);
  shape.images = uint32_t(p.conv.images);
  shape.tiles = uint32_t(lines_of(p, c));
  shape.steps = ceil_div(shape.tiles, choice.spec.slices);
  shape.blocks = FastDivmod(ceil_div(shape.channels, c.tile.n));
  shape.columns = FastDivmod(strips_of_line(p, c));
  shape.rows = FastDivmod(shape.made[0]);
  return shape;
}

double predict_direct_staged_wgrad_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const DirectShape shape = direct_staged_wgrad_shape(choice);
  const double multiply_adds = c.tile.m * direct_sums(c) * kMultiplyInstructions;
  const double issue = kDirectThreads / 32 * (multiply_adds + kLineInstructions) / 4;
  const auto [beside, turns] = turns_of(choice, kLeastCtas, device);
  const double begun = 1 + double(shape.steps - 1) / shape.rows.divisor;
  const double first_lines = staged_reach(c) + (c.tile.stages - 2.0) * c.direct.height.stride;
  const double first = begun * (kFirstClocks + first_lines * staged_pixel_bytes(c) / kFirstBytesPerClock);
  const double clocks = shape.steps * std::max(kLineClocks + issue, beside * issue) + beside * first;
  return narrow_gradient_us(choice, device, turns, turns * clocks, kCosts);
}

}  // namespace cleave
