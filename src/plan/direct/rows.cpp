#include "plan/direct/rows.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue.h"
#include "plan/choice/conv_choice.h"
#include "plan/choice/function_config.h"
#include "plan/direct/fastest.h"
#include "plan/direct/kernels.h"
#include "problem/conv.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kMostDepth = 192;      // of K: with 216, registers were spilled
constexpr int64_t kMostColumns = 1024;   // of D
constexpr uint32_t kMostSteps = 32;      // pieces of K and columns that the kernel spells out, 2 KiB of filters each
constexpr uint32_t kMostBlocks = 8;      // of columns, for each of which pixels are read
constexpr uint32_t kMostRegisters = 80;  // of a thread: pixels, and sums
constexpr uint32_t kWarps = kDirectThreads / 32;
constexpr uint32_t kVector = 4;  // channels of D of a thread, of 32 of a warp: with 8 registers were spilled

// Fitted to 28 times of an H200, of which they are 6 % off (docs/notes/2026-11-convolution.md).
constexpr double kLaunchUs = 2.2;
constexpr double kDepthUs = 0.28;             // of a piece of K
constexpr double kFilterBytesPerUs = 12.6e3;  // of a CTA
constexpr double kReadShare = 0.82, kWriteShare = 0.72;
constexpr double kLastRound = 0.19;  // of what whole CTAs' turns would read and write, beside what they do
// Convolutions' tiles of few channels take longer than their model says. With 1.06 to 1.14 the choices that
// tests/cpp/direct_rows_test.cpp has are the faster ones.
constexpr double kTilesFlattered = 1.1;
constexpr double kIssueShare = 0.7;
constexpr double kMultiplyClocks = 1.6;                           // of an SM
constexpr double kLoadInstructions = 4, kStoreInstructions = 12;  // of a warp: for 8 pixels' 32, or 16, channels

int64_t depth_of(const ConvLayout& conv) {
  return conv.kind == Conv::dgrad ? conv.filters : conv.channels;
}
int64_t columns_of(const ConvLayout& conv) {
  return conv.kind == Conv::dgrad ? conv.channels : conv.filters;
}

/// Columns of a CTA, of which all have as many; 0: of too many CTAs.
uint32_t tile_columns(const ConvLayout& conv) {
  const auto eights = uint32_t(columns_of(conv)) / 8, depths = ceil_div(uint32_t(depth_of(conv)), kRowsDepth);
  const uint32_t most = kMostSteps / depths * 4;
  for (uint32_t blocks = ceil_div(eights, most); blocks <= kMostBlocks; ++blocks)
    if (eights % blocks == 0) return eights / blocks * 8;
  return 0;
}

bool is_served(const GemmProblem& p, const DeviceInfo& device) {
  const ConvLayout& conv = p.conv;
  if (conv.kind != Conv::fprop && conv.kind != Conv::dgrad) return false;
  if (!matrix_product(p) || p.m == 0 || p.m > INT32_MAX) return false;
  const int64_t depth = depth_of(conv), columns = columns_of(conv);
  if (depth == 0 || depth % 8 != 0 || depth > kMostDepth) return false;
  if (columns == 0 || columns % 8 != 0 || columns > kMostColumns) return false;
  if (size_of(p.a.dtype) != 2 || p.b.dtype != p.a.dtype || !is_wide_float(p.d.dtype)) return false;
  const int64_t filter = conv.kind == Conv::fprop ? p.b.stride_col : p.b.stride_row;
  if (aligned_channels(p.a, p.a.stride_row) < 8 || aligned_channels(p.b, filter) < 8) return false;
  if (is_gated(p) || reduces(p) || p.has_scale_d || p.has_amax || finds_scales(p)) return false;
  return device.compute_capability >= 80 && tile_columns(conv) > 0 && wants_direct(p);
}

GemmConfig rows_config(const GemmProblem& p, const Spec& spec) {
  GemmConfig c = direct_config(p, spec, kVector);
  c.direct.method = DirectMethod::rows;
  c.direct.group = 1;
  c.tile.k = uint32_t(depth_of(p.conv));
  c.operands.b_major = p.conv.kind == Conv::fprop ? Major::k : Major::mn;
  c.epilogue.function = function_config(p, false);
  c.store.run_bytes = std::min(c.direct.vector, aligned_channels(p.d, p.d.stride_row)) * size_of(p.d.dtype);
  return c;
}

uint32_t blocks_of(const GemmProblem& p, const GemmConfig& c) {
  return ceil_div(uint32_t(columns_of(p.conv)), c.tile.n);
}

}  // namespace

std::optional<Spec> direct_rows_spec(const GemmProblem& p, const DeviceInfo& device) {
  if (!is_served(p, device)) return std::nullopt;
  FastestSpec fastest(p, device, make_direct_rows_choice, predict_direct_rows_us);
  for (const uint32_t m : {128u, 256u})
    fastest.offer({.family = KernelFamily::direct, .tile_m = m, .tile_n = tile_columns(p.conv)});
  return fastest.spec();
}

std::optional<Choice> make_direct_rows_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  if (!is_served(problem, device)) return std::nullopt;
  // A tuned file's tile may be anything.
  if (spec != Spec{.family = KernelFamily::direct, .tile_m = spec.tile_m, .tile_n = tile_columns(problem.conv)})
    return std::nullopt;
  if (spec.tile_m != 128 && spec.tile_m != 256) return std::nullopt;
  Choice choice{.spec = spec, .problem = problem};
  GemmConfig& c = choice.config = rows_config(problem, spec);
  const uint32_t registers = rows_eights(c) * (rows_depths(c) * 4 + rows_blocks(c) * 4);
  if (registers > kMostRegisters || smem_plan(c).bytes > uint32_t(device.shared_memory_per_block)) return std::nullopt;
  choice.rows_of_d = problem.m;
  const uint32_t blocks = blocks_of(problem, c);
  deal_tiles(choice, ceil_div<int64_t>(problem.m, c.tile.m) * blocks, blocks, uint32_t(device.num_sms) * ctas_of_sm(c));
  return choice;
}

DirectShape direct_rows_shape(const Choice& choice) {
  const GemmConfig& c = choice.config;
  DirectShape shape = direct_images(choice.problem.conv);
  shape.channels = uint32_t(columns_of(choice.problem.conv));
  shape.blocks = FastDivmod(blocks_of(choice.problem, c));
  shape.tiles = choice.most_tiles;
  return shape;
}

double predict_direct_rows_us(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const GemmProblem& p = choice.problem;
  const double eights = rows_eights(c), blocks = rows_parts(c) * rows_blocks(c), steps = blocks * rows_depths(c) * 2;
  const double load = eights * rows_depths(c) * kLoadInstructions;
  const double store = eights * blocks * kStoreInstructions;
  const double multiply = eights * steps;
  const double issue = (load + store + multiply + steps) / 4 / kIssueShare;
  // Turns of warps that an SM has in all.
  const double turns = std::ceil(double(ceil_div<int64_t>(p.m, c.tile.m / kWarps)) * blocks_of(p, c) / device.num_sms);
  const double clocks = turns * std::max(issue, multiply * kMultiplyClocks);
  const double read = double(p.m) * c.tile.k * 2, again = read * (blocks_of(p, c) - 1) / 2;  // L2 has half of it
  const double made = double(p.m) * double(columns_of(p.conv)) * size_of(c.epilogue.d) * (p.has_c ? 2 : 1);
  const double rounds = choice.tiles / (device.num_sms * ctas_of_sm(c));
  const double idle = 1 + kLastRound * (std::ceil(rounds) / rounds - 1);
  const double bytes = (read + again) / kReadShare + made / kWriteShare;
  const double memory = idle * bytes / (device.memory_gb_per_s * 1e3);
  const double us = kLaunchUs + rows_depths(c) * kDepthUs + rows_bytes(c) / kFilterBytesPerUs +
                    std::max(memory, clocks / (device.clock_ghz * 1e3));
  return runs_as_product(p) ? us : us / kTilesFlattered;
}

}  // namespace cleave
