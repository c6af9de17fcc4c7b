#include "plan/direct/pixels.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv.h"
#include "cleave/epilogue.h"
#include "plan/choice/function_config.h"
#include "plan/direct/kernels.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostVector = 8, kMostStrip = 8;
constexpr uint32_t kMostTaps = 128;  // of a filter, times a group's channels: shared memory
constexpr uint32_t kMostSums = 48;   // of a thread, and
constexpr uint32_t kMostWords = 72;  // gathered: registers
constexpr uint32_t kMostSteps = 4;
constexpr uint32_t kMostStaged = 75 * 1024;  // bytes of a CTA's shared memory
// Pixels along a line that is made. With fewer, pixels in shared memory saved 6 to 17 % (up to 28 were measured); with
// more they cost 4 to 25 % (from 47 on), where half as many banks serve a load, and L1 had what lines share.
constexpr uint32_t kMostStagedLine = 32;

// Fitted to 31 times of an H200, of which they are 13 % off: what a lane spends on a channel. Where CTAs are few, one
// takes as long as another, which 8 other layers confirmed.
constexpr double kLaunchUs = 3.5;
constexpr double kTapInstructions = 2.6, kMadeInstructions = 25, kGatheredInstructions = 21;
constexpr double kMemoryShare = 0.75;

/// Channels that threads load and store at once.
uint32_t vector_of(const GemmProblem& p) {
  return narrow_vector(p, p.conv.channels == 8 ? kMostVector : 4);
}

/// The strip that wastes least of a line, the longest of those.
uint32_t strip_of(Conv kind, const ConvAxis& axis, uint32_t vector, DType type) {
  const DirectAxis of = direct_axis(kind, axis);
  const uint32_t length = pixels_made(kind, axis), step = kind == Conv::dgrad ? of.stride : 1;
  uint32_t best = 0;
  for (uint32_t strip = step; strip <= kMostStrip; strip += step) {
    const uint32_t words = gathered_span(kind, of, strip).size() * std::max(vector * size_of(type) / 4, 1u);
    if (strip * vector > kMostSums || words > kMostWords) break;
    if (strip < 4 && length > strip && step < 4) continue;  // shorter ones share too little
    if (best == 0 || round_up(length, strip) <= round_up(length, best)) best = strip;
  }
  return best;
}

/// Strips beside each other of a CTA's: about as many lines as pixels along them, so that what it reads around its
/// pixels is least.
uint32_t strips_of(uint32_t places, uint32_t along, uint32_t strip) {
  uint32_t strips = 1;
  while (strips * 2 <= along && strips * strips * 4 * strip <= places * 4) strips *= 2;
  return strips;
}

/// But for what lies in shared memory.
GemmConfig pixels_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, vector_of(p));
  c.operands.b_major = p.conv.kind == Conv::fprop ? Major::k : Major::mn;
  const uint32_t along = ceil_div(pixels_made(p.conv.kind, p.conv.axes[2]), spec.tile_m);
  c.direct.strips = strips_of(kDirectThreads / (spec.tile_n / c.direct.vector), along, spec.tile_m);
  return c;
}

/// Pixels that fit into shared memory, which three CTAs of an SM share; none if they do not, are not aligned, if lines
/// are long, or where there are strides: down the images was faster in five of six such layers, up to 1.6 times.
uint32_t staged_pixels(const GemmProblem& p, GemmConfig c) {
  const uint32_t piece = 16 / size_of(p.a.dtype);
  const bool pieces = p.batch * p.conv.channels % piece == 0 && aligned_channels(p.a, p.a.stride_row) >= piece;
  if (!pieces || c.tile.n % piece != 0 || direct_lines(c) == 0) return 0;
  if (pixels_made(p.conv.kind, p.conv.axes[2]) > kMostStagedLine) return 0;
  if (p.conv.axes[1].stride > 1 || p.conv.axes[2].stride > 1) return 0;
  c.direct.pixels = staged_lines(c) * staged_columns(c);
  return pixels_bytes(c) <= kMostStaged ? c.direct.pixels : 0;
}

uint32_t ctas_of_image(const GemmProblem& p, const GemmConfig& c) {
  const auto along = ceil_div(pixels_made(p.conv.kind, p.conv.axes[2]), c.tile.m * c.direct.strips);
  return ceil_div(uint32_t(p.batch * p.conv.channels), c.tile.n) * along *
         ceil_div(pixels_made(p.conv.kind, p.conv.axes[1]), direct_lines(c));
}

}  // namespace

std::optional<Spec> direct_pixels_spec(const GemmProblem& p, const DeviceInfo&) {
  if (!serves_narrow_groups(p)) return std::nullopt;
  const uint32_t vector = vector_of(p), channels = uint32_t(p.batch * p.conv.channels);
  const uint32_t strip = strip_of(p.conv.kind, p.conv.axes[2], vector, p.a.dtype);
  if (strip == 0) return std::nullopt;
  // As few CTAs as threads allow, of half a line of memory, one, or two.
  const uint32_t piece = 16 / size_of(p.a.dtype), line = 128 / size_of(p.a.dtype);
  std::optional<Spec> best;
  uint32_t least = 0;
  for (const uint32_t most : {line, line * 2, line / 2}) {
    const uint32_t n = round_up(ceil_div(channels, ceil_div(channels, most)), std::max(piece, vector));
    if (n / vector > kDirectThreads) continue;
    const Spec spec{.family = KernelFamily::direct, .tile_m = strip, .tile_n = n};
    const GemmConfig c = pixels_config(p, spec);
    if (staged_pixels(p, c) == 0) continue;
    const uint32_t ctas = ctas_of_image(p, c);
    if (!best || ctas * 10 < least * 9) best = spec, least = ctas;
  }
  return best;
}

std::optional<Choice> make_direct_pixels_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                const Spec& spec) {
  const auto own = direct_pixels_spec(problem, device);
  if (!own || *own != spec) return std::nullopt;  // another cut is another problem's
  const ConvLayout& conv = problem.conv;
  Choice choice{.spec = spec, .problem = problem};
  GemmProblem& p = choice.problem;
  p.n *= p.batch;
  p.batch = 1;
  GemmConfig& c = choice.config = pixels_config(problem, spec);
  c.direct.pixels = staged_pixels(problem, c);
  c.epilogue.function = function_config(p, false);
  if (c.direct.vector % c.direct.group != 0) return std::nullopt;
  if (c.direct.height.taps * c.direct.width.taps * c.direct.group > kMostTaps) return std::nullopt;
  if (smem_plan(c).bytes > uint32_t(device.shared_memory_per_block)) return std::nullopt;
  const DirectShape shape = direct_pixels_shape(choice);
  const uint64_t blocks = uint64_t(shape.blocks.divisor) * shape.columns.divisor * shape.rows.divisor * conv.images;
  if (blocks > INT32_MAX || p.m > INT32_MAX) return std::nullopt;
  choice.blocks = uint32_t(blocks);
  choice.tiles = double(blocks);
  choice.most_tiles = choice.blocks;
  return choice;
}

DirectShape direct_pixels_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_images(conv);
  shape.channels = uint32_t(choice.problem.n);
  const uint32_t blocks = ceil_div(shape.channels, c.tile.n);
  const uint32_t columns = ceil_div(shape.made[1], c.tile.m * c.direct.strips);
  const uint32_t lines = ceil_div(shape.made[0], direct_lines(c));
  // Several steps share filters and lines, as long as there are enough CTAs.
  constexpr uint64_t kEnough = 132 * 8;
  shape.steps = std::min(lines, kMostSteps);
  while (shape.steps > 1 && uint64_t(blocks) * columns * ceil_div(lines, shape.steps) * conv.images < kEnough)
    --shape.steps;
  shape.blocks = FastDivmod(blocks);
  shape.columns = FastDivmod(columns);
  shape.rows = FastDivmod(ceil_div(lines, shape.steps));
  return shape;
}

double predict_direct_pixels_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  const bool gathers_outputs = c.conv.kind == Conv::dgrad;
  const double of_outputs = double(output_pixels(conv)), of_image = double(image_pixels(conv));
  const double made = gathers_outputs ? of_image : of_outputs, gathered = gathers_outputs ? of_outputs : of_image;
  const double taps = double(c.direct.height.taps) * c.direct.width.taps * c.direct.group;
  const double met = gathers_outputs ? taps / (double(c.direct.height.stride) * c.direct.width.stride) : taps;
  const double instructions = made * (kTapInstructions * met + kMadeInstructions) + gathered * kGatheredInstructions;
  const double of_sm = choice.tiles / device.num_sms, turns = std::max((of_sm + std::ceil(of_sm)) / 2, 1.0);  // CTAs
  const double of_all = instructions * double(choice.problem.n) / (device.num_sms * 128.0);
  const double multiply = turns / of_sm * of_all / (device.clock_ghz * 1e3);
  const double memory = narrow_bytes(choice) / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  return kLaunchUs + std::max(multiply, memory);
}

}  // namespace cleave
