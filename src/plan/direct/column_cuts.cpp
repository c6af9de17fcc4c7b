#include "plan/direct/column_cuts.h"

#include <algorithm>

#include "cleave/config/direct_columns.h"
#include "plan/direct/kernels.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostRegisters = 88;  // but for filters in registers: with 89 to 100 some spilled, and
constexpr uint32_t kMostOfPairs = 76;    // weight gradients that meet two lines at a time with 79 and 87,
constexpr uint32_t kMostOfLines = 64;    // those of three lines and more with 71 to 88
constexpr uint32_t kMostReach = 32;      // gathered pixels of a line: bits of a word

uint32_t strips_of(const ConvLayout& conv, uint32_t strip) {
  return ceil_div(pixels_made(conv.kind, conv.axes[2]), strip);
}
uint32_t cells_of_column(const GemmConfig& c, const ConvLayout& conv) {
  return ceil_div(pixels_made(conv.kind, conv.axes[1]), shift_cell(conv.kind, c.direct.height));
}

}  // namespace

bool has_columns(const GemmConfig& c) {
  const GatheredSpan down = shift_span(c.conv.kind, c.direct.height);
  const GatheredSpan across = gathered_span(c.conv.kind, c.direct.width, c.tile.m);
  if (down.first > down.last || across.first > across.last) return false;  // no tap lands
  if (down.size() > kMostReach || across.size() > kMostReach) return false;
  const bool gradient = c.conv.kind == Conv::wgrad;
  const uint32_t most = !gradient && holds_filters(c)            ? kColumnRegisters
                        : gradient && c.direct.height.stride > 2 ? kMostOfLines
                        : gradient && c.direct.height.stride > 1 ? kMostOfPairs
                                                                 : kMostRegisters;
  return column_registers(c) <= most;
}

uint32_t column_channels(const GemmProblem& p, uint32_t vector) {
  const uint32_t channels = uint32_t(p.batch * p.conv.channels), sector = std::max(32 / size_of(p.a.dtype), vector);
  uint32_t best = 0;
  double most = 0;
  for (uint32_t blocks = 1; blocks <= channels; ++blocks) {
    const uint32_t n = round_up(ceil_div(channels, blocks), channels > sector ? sector : vector);
    if (n / vector > kDirectThreads) continue;
    if (best > 0 && n / vector < 8) break;
    const uint32_t lanes = n / vector, threads = kDirectThreads / lanes * lanes;
    const double beside = std::max(1.0, lanes / 32.0);                  // strips that share little
    const double line = std::min(1.0, n * size_of(p.a.dtype) / 128.0);  // of memory
    const double busy =
        double(channels) / (blocks * n) * threads / kDirectThreads * (1.03 - 0.03 * beside) * (0.8 + 0.2 * line);
    if (busy > most * 1.005) best = n, most = busy;
  }
  return best;
}

int64_t column_cells(const GemmConfig& c, const ConvLayout& conv) {
  const int64_t columns = ceil_div<int64_t>(conv.images * strips_of(conv, c.tile.m), column_places(c));
  return columns * cells_of_column(c, conv);
}

DirectShape column_shape(const Choice& choice, uint32_t channels) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  DirectShape shape = direct_images(conv);
  shape.channels = channels;
  shape.images = uint32_t(conv.images);
  const uint32_t blocks = ceil_div(channels, c.tile.n);
  shape.tiles = uint32_t(column_cells(c, conv));
  shape.steps = ceil_div(shape.tiles, choice.blocks / blocks);
  shape.blocks = FastDivmod(blocks);
  shape.columns = FastDivmod(strips_of(conv, c.tile.m));
  shape.rows = FastDivmod(cells_of_column(c, conv));
  return shape;
}

double column_multiply_adds(const GemmConfig& c) {
  const Conv kind = c.conv.kind;
  uint32_t down = 0, across = 0;
  for (uint32_t i = 0; i < shift_cell(kind, c.direct.height); ++i) down += taps_met(kind, c.direct.height, i);
  for (uint32_t j = 0; j < c.tile.m; ++j) across += taps_met(kind, c.direct.width, j);
  return double(down) * across * c.direct.vector * c.direct.group;
}
double column_lines(const GemmConfig& c, const DirectShape& shape) {
  const double begun = 1 + double(shape.steps - 1) / shape.rows.divisor;
  return (shape.steps + begun * (column_steps(c) - 1)) * shift_step(c.conv.kind, c.direct.height);
}

}  // namespace cleave
