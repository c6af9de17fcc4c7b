#include "plan/direct/wgrad.h"

#include <algorithm>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue.h"
#include "plan/direct/kernels.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostVector = 8, kMostStrip = 8;
constexpr uint32_t kChannels = 32;  // of a CTA
constexpr uint32_t kMostSums = 80;  // of a thread; and, so that two CTAs share an SM,
constexpr uint32_t kManySums = 40;
constexpr uint32_t kMostWords = 96;  // sums and what is loaded: registers
constexpr uint32_t kCtasOfSm = 2;    // in all

// 0.8 to 1.2 of what an H200 took for 50 layers; lines of stride 2 in groups of 4 are a third below.
constexpr double kLaunchUs = 2.4, kReductionUs = 4.6;
constexpr double kMemoryShare = 0.75;
constexpr double kMultiplyInstructions = 3.1, kLoadInstructions = 3.9;  // with conversions, addresses

/// Registers for what a thread loads.
uint32_t words_of(const DirectAxis& axis, uint32_t strip, uint32_t vector, DType type) {
  return (strip + gathered_span(Conv::wgrad, axis, strip).size()) * std::max(vector * size_of(type) / 4, 1u);
}

/// The strip that wastes least of a line, the longest of those.
uint32_t strip_of(const GemmProblem& p, uint32_t vector) {
  const DirectAxis axis = direct_axis(Conv::wgrad, p.conv.axes[2]);
  const auto length = uint32_t(outputs(p.conv.axes[2]));
  const uint32_t sums = axis.taps * uint32_t(p.conv.channels) * vector;
  uint32_t best = 1;
  for (uint32_t strip = 2; strip <= std::min(kMostStrip, length); ++strip) {
    if (sums + words_of(axis, strip, vector, p.a.dtype) > kMostWords && strip > 2) break;
    if (strip <= 4 || round_up(length, strip) <= round_up(length, best)) best = strip;
  }
  return best;
}

int64_t lines_of(const ConvLayout& conv) {
  return conv.images * outputs(conv.axes[1]);
}

}  // namespace

bool serves_tap_lines(const GemmProblem& p) {
  for (const ConvAxis& axis : p.conv.axes)
    if (uint32_t(axis.filter) > kMostGradientTaps) return false;
  return serves_narrow_gradients(p);
}

uint32_t tap_line_vector(const GemmProblem& p) {
  const uint32_t channels = common_alignment(uint64_t(p.batch) * p.conv.channels);
  // Outputs' pixels follow filter by filter: A is their transpose.
  uint32_t vector = std::min({p.a.dtype == DType::f32 ? 4 : kMostVector, channels,
                              aligned_channels(p.a, p.a.stride_col), aligned_channels(p.b, p.b.stride_row)});
  const auto group = uint32_t(p.conv.channels), taps = uint32_t(p.conv.axes[2].filter);
  while (vector > group && vector * group * taps > kManySums) vector /= 2;
  return vector;
}

std::optional<Spec> direct_wgrad_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!serves_tap_lines(p)) return std::nullopt;
  const uint32_t vector = tap_line_vector(p), channels = uint32_t(p.batch * p.conv.channels);
  const uint32_t blocks = ceil_div(channels, kChannels), strip = strip_of(p, vector);
  Spec spec{.family = KernelFamily::direct, .tile_m = strip, .tile_n = round_up(ceil_div(channels, blocks), vector)};
  if (p.split_k_mode == SplitKMode::none) return spec;
  const int64_t strips = lines_of(p.conv) * ceil_div<int64_t>(outputs(p.conv.axes[2]), strip);
  const uint32_t places = std::max(direct_places(spec.tile_n, vector, uint32_t(p.conv.axes[1].filter)), 1u);
  const int64_t most = std::min(lines_of(p.conv), std::max<int64_t>(strips / places, 1));
  const int64_t slices = p.split_k_slices > 0 ? p.split_k_slices : int64_t(device.num_sms) * kCtasOfSm / blocks;
  spec.slices = uint32_t(std::clamp<int64_t>(slices, 1, p.split_k_slices > 0 ? lines_of(p.conv) : most));
  if (spec.slices > 1) spec.split = SplitKMode::parallel;
  return spec;
}

std::optional<Choice> make_direct_wgrad_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  // A tuned file's tile may be anything.
  if (!serves_tap_lines(problem) || spec.tile_m == 0 || spec.tile_n == 0) return std::nullopt;
  if (spec.tile_n > kDirectThreads * tap_line_vector(problem)) return std::nullopt;
  const ConvLayout& conv = problem.conv;
  Choice choice{.spec = spec, .problem = problem};
  GemmProblem& p = choice.problem;
  p.m *= p.batch;  // filters of all groups
  p.batch = 1;
  GemmConfig& c = choice.config = direct_config(problem, spec, tap_line_vector(problem));
  c.operands.a_major = c.operands.b_major = Major::mn;
  c.schedule.split = spec.split;
  const bool parallel = spec.split == SplitKMode::parallel && spec.cluster_k == 1;
  if (parallel ? spec.slices < 2 || spec.slices > lines_of(conv) : spec.split != SplitKMode::none || spec.slices != 1)
    return std::nullopt;
  if (c.direct.vector % c.direct.group != 0 || c.tile.n % c.direct.vector != 0 || c.tile.m > kMostStrip ||
      direct_sums(c) > kMostSums || words_of(c.direct.width, c.tile.m, c.direct.vector, p.a.dtype) > kMostWords ||
      direct_places(c) == 0 || smem_plan(c).bytes > uint32_t(device.shared_memory_per_block))
    return std::nullopt;
  const DirectShape shape = direct_wgrad_shape(choice);
  const uint32_t blocks = shape.blocks.divisor, slices = ceil_div(shape.lines, shape.steps);
  choice.spec.slices = slices;  // fewer, where lines are dealt evenly
  if (slices == 1) choice.spec.split = c.schedule.split = SplitKMode::none;
  if (uint64_t(blocks) * slices > INT32_MAX || lines_of(conv) > INT32_MAX) return std::nullopt;
  choice.blocks = blocks * slices;
  choice.tiles = double(blocks);
  choice.most_tiles = blocks;
  reserve_slices(choice, blocks, slices);
  return choice;
}

DirectShape direct_wgrad_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_images(conv);
  shape.channels = uint32_t(choice.problem.m);
  shape.lines = uint32_t(lines_of(conv));
  shape.steps = ceil_div(shape.lines, choice.spec.slices);
  shape.blocks = FastDivmod(ceil_div(shape.channels, c.tile.n));
  shape.columns = FastDivmod(ceil_div(shape.made[1], c.tile.m));
  shape.rows = FastDivmod(shape.made[0]);
  return shape;
}

double predict_direct_wgrad_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const double taps = double(c.direct.height.taps) * c.direct.width.taps * c.direct.group;
  const ConvLayout& conv = choice.problem.conv;
  const double channels = double(choice.problem.m), made = double(output_pixels(conv));
  const double running = std::min(1.0, double(choice.blocks) / device.num_sms);
  const double met = c.tile.m + gathered_span(Conv::wgrad, c.direct.width, c.tile.m).size();  // of a strip
  const double loads = met / c.tile.m * c.direct.height.taps;
  const double instructions = made * channels * (taps * kMultiplyInstructions + loads * kLoadInstructions);
  const double multiply = instructions / (device.num_sms * running * 128.0 * device.clock_ghz * 1e3);
  const double bytes = (made + double(image_pixels(conv))) * channels * size_of(choice.problem.a.dtype);
  const double memory = bytes / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  const double reduction = choice.spec.slices > 1 ? kReductionUs + slice_sums_us(choice) : 0;
  return kLaunchUs + reduction + std::max(multiply, memory);
}

}  // namespace cleave
