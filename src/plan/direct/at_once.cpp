#include "plan/direct/at_once.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/direct_at_once.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv.h"
#include "cleave/epilogue.h"
#include "plan/choice/function_config.h"
#include "plan/direct/column_cuts.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostSpan = 16;
constexpr uint32_t kMostStrip = 8, kMostVector = 4;

// Fitted to 276 times of an H200, of which they are 9 % off. A thread's instructions wait for each other, and those of
// an SM's threads take turns; half of what takes less, that or memory, is hidden.
constexpr double kLaunchUs = 1.65, kOwnClocks = 2.8, kTurnClocks = 1.26;
constexpr double kLineFactor = 1.06;  // of turns, where filters are loaded line by line: 16 layers of 7x7
constexpr double kMemoryShare = 0.79, kBesideShare = 0.5;

GemmConfig at_once_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, spec.columns);
  c.direct.method = DirectMethod::at_once;
  c.operands.b_major = p.conv.kind == Conv::fprop ? Major::k : Major::mn;
  c.epilogue.function = function_config(p, false);
  return c;
}

/// Filters are loaded as they lie, 16 bytes at a time.
bool is_served(const GemmProblem& p) {
  if (!serves_narrow_groups(p)) return false;
  if (p.a.stride_row > kMostColumnStride || p.d.stride_row > kMostColumnStride) return false;
  if (p.batch * p.conv.channels * size_of(p.a.dtype) % 16 != 0) return false;
  const int64_t filter = p.conv.kind == Conv::fprop ? p.b.stride_col : p.b.stride_row;
  return filter == taps(p.conv) * p.conv.channels && p.b.alignment % 16 == 0;
}

/// Whether threads, and their registers, suffice. A tuned file's spec may be anything.
bool is_cut(const GemmProblem& p, const Spec& spec) {
  const uint32_t vector = spec.columns, widest = narrow_vector(p, kMostVector);
  if (vector == 0 || vector > widest || widest % vector != 0 || vector % uint32_t(p.conv.channels) != 0) return false;
  if (spec.tile_m == 0 || spec.tile_m > kMostStrip) return false;
  if (spec.tile_n == 0 || spec.tile_n % vector != 0 || spec.tile_n > kDirectThreads * vector) return false;
  if (spec.tile_n * size_of(p.a.dtype) % 16 != 0) return false;
  const Spec own{.family = KernelFamily::direct,
                 .tile_m = spec.tile_m,
                 .tile_n = spec.tile_n,
                 .columns = spec.columns,
                 .at_once = true};
  if (spec != own) return false;
  const GemmConfig c = at_once_config(p, spec);
  if (p.conv.kind == Conv::dgrad && spec.tile_m % c.direct.width.stride != 0) return false;
  const GatheredSpan across = gathered_span(c.conv.kind, c.direct.width, c.tile.m);
  if (across.first > across.last || across.size() > kMostSpan) return false;
  return c.direct.height.taps <= kMostSpan && at_once_registers(c) <= kAtOnceRegisters;
}

uint32_t strips_of(const Choice& choice) {
  const ConvLayout& conv = choice.problem.conv;
  return ceil_div(pixels_made(conv.kind, conv.axes[2]), choice.config.tile.m);
}

/// A thread's.
double instructions(const GemmConfig& c) {
  const double vector = c.direct.vector, taps = double(c.direct.height.taps) * c.direct.width.taps * c.direct.group;
  const double pixels = double(c.direct.height.taps) * gathered_span(c.conv.kind, c.direct.width, c.tile.m).size();
  double met = 0;
  for (uint32_t j = 0; j < c.tile.m; ++j) met += taps_met(c.conv.kind, c.direct.width, j);
  return 100 + pixels * (3 + vector) + 1.3 * taps * vector + met * c.direct.height.taps * c.direct.group * vector +
         c.tile.m * (vector + 8);
}

}  // namespace

std::optional<Spec> direct_at_once_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p)) return std::nullopt;
  FastestSpec fastest(p, device, make_direct_at_once_choice, predict_direct_at_once_us);
  for (uint32_t vector = kMostVector; vector > 1 || (vector > 0 && !fastest.spec()); vector /= 2) {
    const Spec cut{.family = KernelFamily::direct, .tile_n = 32 * vector, .columns = vector, .at_once = true};
    for (uint32_t strip = 1; strip <= kMostStrip; ++strip) {
      Spec spec = cut;
      spec.tile_m = strip;
      fastest.offer(spec);
    }
  }
  return fastest.spec();
}

std::optional<Choice> make_direct_at_once_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                 const Spec& spec) {
  if (!is_served(problem) || !is_cut(problem, spec)) return std::nullopt;
  Choice choice{.spec = spec, .problem = problem};
  GemmProblem& p = choice.problem;
  p.n *= p.batch;
  p.batch = 1;
  GemmConfig& c = choice.config = at_once_config(problem, spec);
  if (smem_plan(c).bytes > uint32_t(device.shared_memory_per_block)) return std::nullopt;
  const int64_t lines = problem.conv.images * pixels_made(problem.conv.kind, problem.conv.axes[1]);
  const int64_t turns = ceil_div<int64_t>(lines * strips_of(choice), column_places(c));
  const int64_t blocks = turns * ceil_div(uint32_t(p.n), c.tile.n);
  if (blocks > INT32_MAX || lines * strips_of(choice) > INT32_MAX / 2 || p.m > INT32_MAX) return std::nullopt;
  choice.blocks = choice.most_tiles = uint32_t(blocks);
  choice.tiles = double(blocks);
  return choice;
}

DirectShape direct_at_once_shape(const Choice& choice) {
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_images(conv);
  shape.channels = uint32_t(choice.problem.n);
  shape.images = uint32_t(conv.images);
  shape.blocks = FastDivmod(ceil_div(shape.channels, choice.config.tile.n));
  shape.columns = FastDivmod(strips_of(choice));
  shape.rows = FastDivmod(shape.made[0]);
  return shape;
}

double predict_direct_at_once_us(const Choice& choice, const DeviceInfo& device) {
  const double of_sm = double(choice.blocks) / device.num_sms, own = instructions(choice.config);
  const double factor = holds_all_filters(choice.config) ? 1 : kLineFactor;
  const double turns = factor * (of_sm + std::ceil(of_sm)) / 2 * (kDirectThreads / 128);  // of a scheduler's warps
  const double multiply = own * (kOwnClocks + turns * kTurnClocks) / (device.clock_ghz * 1e3);
  const double memory = narrow_bytes(choice) / (device.memory_gb_per_s * 1e3 * kMemoryShare);
  return kLaunchUs + std::max(multiply, memory) + kBesideShare * std::min(multiply, memory);
}

}  // namespace cleave
