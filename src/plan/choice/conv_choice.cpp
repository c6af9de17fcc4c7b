#include "plan/choice/conv_choice.h"

#include <algorithm>
#include <bit>

#include "cleave/config/loads.h"
#include "cleave/conv.h"
#include "launch/conv_grid.h"
#include "launch/conv_maps.h"
#include "launch/conv_view.h"
#include "plan/choice/operand_layout.h"
#include "problem/conv.h"
#include "problem/placement.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostMappedClasses = 16;  // 4 x 4: every launch brings two maps for each

/// Whether the groups of what TMA gathers, and of the filters beside it, follow each
/// other: one map shows them all.
bool groups_adjoin(const GemmProblem& p) {
  const ConvLayout& conv = p.conv;
  const MatrixLayout& gathered = gathers_a(conv.kind) ? p.a : p.b;
  if (gathered.stride_batch != gathered_channels(conv)) return false;
  if (conv.kind == Conv::wgrad) return true;
  const int64_t filter = conv.kind == Conv::fprop ? p.b.stride_col : p.b.stride_row;
  return p.b.stride_batch == conv.filters * filter;
}

}  // namespace

std::optional<GemmProblem> conv_view(const GemmProblem& problem, const Spec& spec) {
  const GemmConfig kernel{.family = spec.family,
                          .conv = {.kind = problem.conv.kind,
                                   .fuses_classes = spec.fuses_classes,
                                   .patches = makes_patches(problem, spec),
                                   .gather = spec.gather,
                                   .batches_taps = batches_taps(problem, spec),
                                   .turned = is_turned(problem, spec)}};
  ConvClasses fused;
  if (kernel.conv.fuses_classes) {
    const bool possible = kernel.conv.kind == Conv::dgrad && problem.batch == 1 && problem.m > 0 &&
                          kernel.conv.gather == (has_tma(kernel.family) && !kernel.conv.patches);
    if (possible) fused = find_classes(problem.conv, true);
    if (fused.list.empty() || fused.columns.pixels.residues.size == 1) return std::nullopt;
  } else if (kernel.conv.gather && !has_tma(kernel.family)) {
    return std::nullopt;
  }
  if (kernel.conv.gather && spec.multicast_m * spec.multicast_n > 1) return std::nullopt;
  if (gathers_by_map(kernel) && problem.batch > 1 && !groups_adjoin(problem)) return std::nullopt;
  if (kernel.conv.batches_taps && problem.batch != 1) return std::nullopt;
  return conv_view(problem, kernel, fused);
}

bool runs_as_product(const GemmProblem& problem) {
  // Where products were ahead (docs/notes/2026-11-convolution.md): gradients, and of outputs up to what their model has
  // seen, and of many filters.
  constexpr int64_t kMostPixels = 1 << 16, kManyFilters = 320;
  if (problem.conv.kind == Conv::fprop && problem.m > kMostPixels && problem.n < kManyFilters) return false;
  if (problem.conv.division != Division::automatic) return false;  // which products do not have
  const auto product = matrix_product(problem);
  if (!product) return false;
  const OperandLayouts operands = operand_layouts(*product);
  return operands.a.load_bytes == 16 && operands.b.load_bytes == 16;  // else threads put a convolution's lines together
}

bool may_run_by_group(const GemmProblem& p) {
  constexpr int64_t kMostGroups = 32;  // which is as many launches
  const int64_t block = atom_elements(p.a.dtype), channels = gathered_channels(p.conv);
  const bool wide = std::min(p.conv.channels, p.conv.filters) > block;
  const bool plain = p.scale_a.kind == Scaling::none && p.scale_b.kind == Scaling::none &&
                     p.scale_out.kind == Scaling::none && !p.has_zero && !p.has_scale_d && !p.has_amax && !reduces(p);
  return p.conv.kind != Conv::none && p.batch > 1 && p.batch <= kMostGroups && wide && plain && channels % block != 0;
}

bool may_halve_lines(const GemmProblem& problem, const Spec& spec) {
  const int64_t atom = atom_elements(problem.a.dtype), channels = gathered_channels(problem.conv);
  const int64_t rest = channels % atom;
  const bool saves = problem.conv.kind == Conv::wgrad ? rest == atom / 2 : rest > 0 && rest <= atom / 2;
  return problem.conv.kind != Conv::none && problem.batch == 1 && has_tma(spec.family) && !spec.gather &&
         !spec.fuses_classes && taps(problem.conv) > 1 && saves;
}

bool may_turn(const GemmProblem& problem, const Spec& spec) {
  const ConvLayout& conv = problem.conv;
  if (problem.batch != 1 || !has_tma(spec.family) || spec.gather || spec.half_lines || reduces(problem)) return false;
  if (conv.kind == Conv::wgrad) return conv.channels * int64_t(size_of(problem.a.dtype)) % 16 == 0;
  // Few filters beside many pixels, all of one class. A tile of fewer pixels is no better than as they lie.
  constexpr int64_t kMostTurned = 128;
  constexpr uint32_t kLeastPixels = 128;
  return size_of(problem.a.dtype) == 2 && problem.n <= kMostTurned && spec.tile_n >= kLeastPixels &&
         !spec.fuses_classes && !is_gated(problem) && count_classes(conv, false) == 1 &&
         !needs_class_walk(find_classes(conv));
}

bool is_turned(const GemmProblem& problem, const Spec& spec) {
  return problem.conv.kind != Conv::none && spec.transposed;
}

bool batches_taps(const GemmProblem& problem, const Spec& spec) {
  return problem.conv.kind == Conv::wgrad && has_tma(spec.family) && !spec.gather && !spec.half_lines &&
         problem.conv.channels % atom_elements(problem.a.dtype) != 0;
}

bool makes_patches(const GemmProblem& problem, const Spec& spec) {
  return spec.fuses_classes && problem.conv.kind == Conv::dgrad && taps(problem.conv) > 1 && are_patches(problem.conv);
}

uint32_t line_alignment(const ConvLayout& conv, const MatrixLayout& layout, bool is_a) {
  const bool of_filter = conv.kind != Conv::wgrad && !is_a;
  if (conv.kind == Conv::wgrad && is_a) return 16;  // a matrix
  const int64_t channels = of_filter ? conv.channels : gathered_channels(conv);
  return common_alignment(uint64_t(channels) * size_of(layout.dtype));
}

bool shape_conv(const GemmProblem& problem, uint32_t part, GemmConfig& config) {
  const ConvLayout& conv = problem.conv;
  if (gathers_by_map(config) && count_classes(conv, config.conv.fuses_classes) > kMostMappedClasses) return false;
  config.conv.axes = conv.axes[0] != ConvAxis{} ? 3 : 2;
  // `automatic` is fast in both: nowhere was another way more than noise ahead (the suite `division`,
  // docs/strided-dgrad.md).
  config.conv.fast_load = conv.division != Division::plain && conv.division != Division::fast_store;
  config.conv.fast_store = conv.division != Division::plain && conv.division != Division::fast_load;
  const ConvClasses classes = find_classes(conv, config.conv.fuses_classes, part);
  const bool walk = needs_class_walk(classes);
  if (walk && config.conv.fuses_classes) return false;
  config.schedule.grouping = walk ? Grouping::classes : Grouping::none;
  config.conv.class_capacity = std::bit_ceil(std::max(uint32_t(classes.list.size()), 1u));
  if (!has_tma(config.family)) return true;
  const bool whole_blocks = problem.batch == 1 || !has_taps_along_k(config) || flattens_taps(config) ||
                            gathered_channels(conv) % config.tile.k == 0;
  const int64_t pixel_stride = gathered_pixel_stride(config, problem);
  return whole_blocks && config.conv.class_capacity <= kMostMappedClasses && serves(config, conv, classes) &&
         reaches_image(config, conv, pixel_stride);
}

}  // namespace cleave
