#include "plan/conv_choice.h"

#include <algorithm>
#include <bit>

#include "cleave/conv.h"
#include "problem/conv_classes.h"

namespace cleave {
namespace {

// What cuTensorMapEncodeIm2col allows with two axes, and with three.
constexpr int32_t kLeastCorner[] = {-128, -16};
constexpr int32_t kMostCorner[] = {127, 15};
constexpr int32_t kMostOffset[] = {255, 31};
constexpr int32_t kMostStep = 8;
constexpr uint32_t kMostMappedClasses = 16;  // more maps do not fit a launch's parameters

bool has_depth(const ConvLayout& conv) {
  return conv.axes[0] != ConvAxis{};
}

/// Of the gathered tensor, along an axis.
int32_t gathered_size(const ConvLayout& conv, uint32_t axis) {
  return conv.kind == Conv::dgrad ? int32_t(outputs(conv.axes[axis])) : conv.axes[axis].size;
}

/// Whether a tensor map reaches all pixels of the class at all taps.
bool is_mappable(const ConvLayout& conv, const ConvClass& c) {
  const uint32_t depth = has_depth(conv) ? 1 : 0;
  for (uint32_t i = 1 - depth; i < kConvAxes; ++i) {
    if (gathered_size(conv, i) < 1 || c.row_step[i] > kMostStep) return false;
    if (c.taps.size == 0) continue;
    const int32_t last = c.origin[i] + int32_t(c.pixels.extent[i] - 1) * c.row_step[i];
    const int32_t upper = last - (gathered_size(conv, i) - 1);
    if (c.origin[i] < kLeastCorner[depth] || c.origin[i] > kMostCorner[depth]) return false;
    if (upper < kLeastCorner[depth] || upper > kMostCorner[depth]) return false;
    if (int32_t(c.taps.extent[i] - 1) * c.tap_step[i] > kMostOffset[depth]) return false;
  }
  return true;
}

}  // namespace

std::optional<GemmProblem> conv_view(const GemmProblem& problem, const Spec& spec) {
  GemmProblem view = problem;
  if (spec.side_by_side) {
    ConvClass joint;
    ClassColumns columns;
    const bool possible = problem.conv.kind == Conv::dgrad && problem.batch == 1 &&
                          spec.gather == (spec.family == KernelFamily::sm90) &&
                          put_side_by_side(problem.conv, joint, columns);
    if (!possible || columns.residues.size == 1 || problem.m == 0) return std::nullopt;
    view.m = joint.rows;
    view.n = problem.n * columns.residues.size;
    view.k = joint.taps.size * problem.conv.filters;
    return view;
  }
  if (spec.gather && (problem.conv.kind == Conv::dgrad || spec.family != KernelFamily::sm90 ||
                      spec.multicast_m * spec.multicast_n > 1))
    return std::nullopt;
  if (spec.family != KernelFamily::sm90 || problem.conv.kind != Conv::wgrad || spec.gather)
    return view;
  if (problem.batch != 1) return std::nullopt;
  view.batch = taps(problem.conv);
  view.n = problem.conv.channels;
  view.a.stride_batch = view.b.stride_batch = 0;
  view.c.stride_batch = view.d.stride_batch = view.n;
  return view;
}

uint32_t channel_alignment(const GemmProblem& problem) {
  const ConvLayout& conv = problem.conv;
  const int64_t gathered = gathered_channels(conv) * int64_t(size_of(problem.a.dtype));
  const int64_t of_filter =
      (conv.kind == Conv::wgrad ? 0 : conv.channels) * int64_t(size_of(problem.b.dtype));
  const int64_t both = gathered | of_filter | 16;
  return uint32_t(both & -both);
}

bool shape_conv(const GemmProblem& problem, GemmConfig& config) {
  const ConvLayout& conv = problem.conv;
  config.conv = conv.kind;
  config.conv_axes = has_depth(conv) ? 3 : 2;
  config.fast_load = conv.division != Division::plain && conv.division != Division::fast_store;
  config.fast_store = conv.division != Division::plain && conv.division != Division::fast_load;
  if (config.side_by_side) {
    config.class_capacity = 1;
    ConvClass joint;
    ClassColumns columns;
    return put_side_by_side(conv, joint, columns) && (!config.gather || is_mappable(conv, joint));
  }
  const auto classes = conv_classes(conv);
  // A tile without k blocks needs the walk that knows of such.
  const bool bare = !classes.empty() && classes.front().taps.size == 0;
  config.grouping = classes.size() > 1 || bare ? Grouping::classes : Grouping::none;
  config.class_capacity = std::bit_ceil(uint32_t(std::max<size_t>(classes.size(), 1)));
  if (config.family == KernelFamily::portable || config.gather) return true;
  const bool many_groups = problem.batch > 1 && conv.kind != Conv::wgrad;
  return classes.size() <= kMostMappedClasses &&
         (!many_groups || gathered_channels(conv) % config.tile_k == 0) &&
         std::all_of(classes.begin(), classes.end(),
                     [&](const ConvClass& c) { return is_mappable(conv, c); });
}

std::vector<ConvClass> dealt_classes(const GemmProblem& problem, const GemmConfig& config,
                                     ClassColumns* columns) {
  std::vector<ConvClass> classes;
  if (config.side_by_side) {
    ClassColumns own;
    put_side_by_side(problem.conv, classes.emplace_back(), columns == nullptr ? own : *columns);
  } else {
    classes = conv_classes(problem.conv);
  }
  deal_tiles(classes.data(), uint32_t(classes.size()), group_step(config), config.tile_k,
             gathered_channels(problem.conv), flattens_taps(config));
  return classes;
}

uint32_t per_tap(const GemmProblem& problem, const GemmConfig& config) {
  const uint32_t channels = gathered_channels(problem.conv);
  const bool by_block = !flattens_taps(config) && gathers_a(config);
  return by_block ? ceil_div(channels, config.tile_k) : channels;
}

}  // namespace cleave
