#include "plan/direct/columns.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/direct_columns.h"
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

// Fitted to some 200 times of an H200 (docs/notes/2026-11-convolution.md). A CTA's line takes so long until its pixels
// are there, and its warps' instructions beside; those of an SM take turns.
constexpr double kLaunchUs = 2.7;
constexpr double kLineClocks = 720, kInstructionClocks = 0.59;
constexpr double kLoadInstructions = 2.2, kStoreInstructions = 3;
constexpr double kSharedFilter = 43, kSharedFactor = 0.73;  // filters from shared memory
// What takes less, that or memory, is not all hidden: layers of 9 to 21 us took 4 to 21 % longer than the other alone.
// Where more than a line is on its way, in rings and by strides, it is.
constexpr double kMemoryShare = 0.65, kBesideShare = 0.2, kHiddenShare = 0.02;

// Rings, fitted to 80 more. Copies ahead hide the memory, but are instructions, too.
constexpr double kRingLaunchUs = 4.2;
constexpr double kRingInstructionClocks = 3.4;
constexpr double kRingMemoryShare = 0.72;

constexpr uint32_t kMostAhead = 8;
constexpr uint32_t kLeastCopied = 4;  // bytes
// Where rings won when they were measured: channels of a thread, strips, and pixels along a line that is made. Filters
// of 5x5, and two channels, took 7 % longer in rings, and strips of 5 in one of three layers 8 %.
constexpr uint32_t kRingVector = 4, kRingStrip = 4, kLeastRingLine = 14;
constexpr uint32_t kPixelsAhead = 12;  // of a thread, on their way

GemmConfig columns_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, spec.columns);
  c.direct.method = DirectMethod::columns;
  c.tile.stages = 1 + spec.ahead;
  c.operands.b_major = p.conv.kind == Conv::fprop ? Major::k : Major::mn;
  c.epilogue.function = function_config(p, false);
  return c;
}

/// Whether threads, and their registers, suffice. A tuned file's spec may be anything.
bool is_cut(const GemmProblem& p, const Spec& spec) {
  const uint32_t vector = spec.columns, widest = narrow_vector(p, kMostColumnVector);
  if (vector == 0 || vector > widest || widest % vector != 0 || vector % uint32_t(p.conv.channels) != 0) return false;
  if (spec.tile_m == 0 || spec.tile_m > kMostColumnStrip) return false;
  if (spec.tile_n == 0 || spec.tile_n % vector != 0 || spec.tile_n > kDirectThreads * vector) return false;
  const Spec own{.family = KernelFamily::direct,
                 .tile_m = spec.tile_m,
                 .tile_n = spec.tile_n,
                 .columns = spec.columns,
                 .ahead = spec.ahead};
  if (spec != own || spec.ahead > kMostAhead) return false;
  if (spec.ahead > 0 && vector * size_of(p.a.dtype) < kLeastCopied) return false;
  const GemmConfig c = columns_config(p, spec);
  if (p.conv.kind == Conv::dgrad && spec.tile_m % c.direct.width.stride != 0) return false;
  return has_columns(c);
}

double filter_reads(const GemmConfig& c) {
  if (holds_filters(c)) return 0;
  uint32_t down = 0;
  for (uint32_t i = 0; i < shift_cell(c.conv.kind, c.direct.height); ++i)
    down += taps_met(c.conv.kind, c.direct.height, i);
  return double(down) * c.direct.width.taps * c.direct.group * std::max(c.direct.vector / 4.0, 1.0);
}

/// Instructions of a thread, for a cell.
double instructions(const GemmConfig& c) {
  const Conv kind = c.conv.kind;
  const double pixels =
      double(shift_step(kind, c.direct.height)) * gathered_span(kind, c.direct.width, c.tile.m).size();
  const double made = double(shift_cell(kind, c.direct.height)) * c.tile.m, vector = c.direct.vector;
  const double conversions = size_of(c.operands.a) == 2 ? vector : 0;
  const double packs = size_of(c.epilogue.d) == 2 ? vector / 2 : 0;
  return column_multiply_adds(c) + kSharedFilter * filter_reads(c) + pixels * (conversions + kLoadInstructions) +
         made * (vector + packs + kStoreInstructions);
}

/// Lines on their way to shared memory, so that a thread waits for as many pixels.
uint32_t lines_ahead(const GemmProblem& p, const Spec& spec) {
  const GemmConfig c = direct_config(p, spec, spec.columns);
  const uint32_t pixels = gathered_span(p.conv.kind, c.direct.width, c.tile.m).size();
  return std::max(kPixelsAhead / std::max(pixels, 1u), 1u);
}

/// Whether it is nothing but relu, silu or the like: an H200 gained 11 to 15 % by rings beside these, and lost 5 %
/// beside gelu, whose operations take a ring's registers.
bool is_short(const EpilogueFunction* function) {
  if (function == nullptr) return true;
  const auto operations = std::ranges::count(function->nodes(), EpilogueNode::Kind::operation, &EpilogueNode::kind);
  return operations <= 2 && function->inputs().empty() && function->outputs().size() == 1;
}

bool suits_rings(const GemmProblem& p, const GemmConfig& c) {
  const bool strided = c.direct.height.stride > 1 || c.direct.width.stride > 1;
  return !strided && !c.epilogue.has_c && is_short(p.epilogue.function) && holds_filters(c) &&
         c.direct.vector == kRingVector && c.tile.m == kRingStrip;
}

/// Predicted to be fastest.
std::optional<Spec> best_cut(const GemmProblem& p, const DeviceInfo& device, bool rings) {
  FastestSpec fastest(p, device, make_direct_columns_choice, predict_direct_columns_us);
  bool held = false;  // filters, by wider vectors: narrower ones only load more often
  for (uint32_t vector = kMostColumnVector; vector > 0 && !held; vector /= 2) {
    const uint32_t n = column_channels(p, vector);
    for (uint32_t strip = 1; strip <= kMostColumnStrip; ++strip) {
      Spec spec{.family = KernelFamily::direct, .tile_m = strip, .tile_n = n, .columns = vector};
      if (rings) spec.ahead = lines_ahead(p, spec);
      const auto choice = make_direct_columns_choice(p, device, spec);
      if (!choice || (rings && !suits_rings(p, choice->config))) continue;
      held = held || holds_filters(choice->config);
      fastest.offer(*choice);
    }
  }
  return fastest.spec();
}

}  // namespace

std::optional<Spec> direct_columns_spec(const GemmProblem& p, const DeviceInfo& device) {
  return serves_narrow_groups(p) ? best_cut(p, device, false) : std::nullopt;
}

std::optional<Spec> direct_column_rings_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (pixels_made(p.conv.kind, p.conv.axes[2]) < kLeastRingLine) return std::nullopt;
  return serves_narrow_groups(p) ? best_cut(p, device, true) : std::nullopt;
}

std::optional<Choice> make_direct_columns_choice(const GemmProblem& problem, const DeviceInfo& device,
                                                 const Spec& spec) {
  if (!serves_narrow_groups(problem) || !is_cut(problem, spec)) return std::nullopt;
  if (problem.a.stride_row > kMostColumnStride || problem.d.stride_row > kMostColumnStride) return std::nullopt;
  Choice choice{.spec = spec, .problem = problem};
  GemmProblem& p = choice.problem;
  p.n *= p.batch;
  p.batch = 1;
  GemmConfig& c = choice.config = columns_config(problem, spec);
  if (smem_plan(c).bytes > uint32_t(device.shared_memory_per_block)) return std::nullopt;
  const int64_t cells = column_cells(c, problem.conv);
  if (cells > INT32_MAX || p.m > INT32_MAX) return std::nullopt;
  const uint32_t blocks = ceil_div(uint32_t(p.n), c.tile.n);
  deal_tiles(choice, cells * blocks, blocks, uint32_t(device.num_sms) * ctas_of_sm(c));
  // As many CTAs as have a share.
  const uint32_t slices = choice.blocks / blocks;
  choice.blocks = ceil_div(uint32_t(cells), ceil_div(uint32_t(cells), slices)) * blocks;
  return choice;
}

DirectShape direct_columns_shape(const Choice& choice) {
  return column_shape(choice, uint32_t(choice.problem.n));
}

double predict_direct_columns_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const DirectShape shape = direct_columns_shape(choice);
  const double lines = column_lines(c, shape), cells = lines / shift_step(c.conv.kind, c.direct.height);
  const double of_sm = std::ceil(double(choice.blocks) / device.num_sms);
  const bool ring = has_column_ring(c);
  const double waits = ring ? 0 : lines * kLineClocks;
  const double clocks =
      of_sm * (waits + cells * instructions(c) * (ring ? kRingInstructionClocks : kInstructionClocks));
  const double multiply = clocks * (holds_filters(c) ? 1 : kSharedFactor) / (device.clock_ghz * 1e3);
  const double memory =
      narrow_bytes(choice) / (device.memory_gb_per_s * 1e3 * (ring ? kRingMemoryShare : kMemoryShare));
  const bool hides = ring || c.direct.height.stride > 1;
  return (ring ? kRingLaunchUs : kLaunchUs) + std::max(multiply, memory) +
         (hides ? kHiddenShare : kBesideShare) * std::min(multiply, memory);
}

}  // namespace cleave
