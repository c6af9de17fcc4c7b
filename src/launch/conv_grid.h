// What a kernel computes of a convolution: the sizes of its product, and its classes with their tiles.
#pragma once

#include <algorithm>
#include <vector>

#include "cleave/config/gemm_config.h"
#include "cleave/conv/fused_classes.h"
#include "launch/gemm_grid.h"

namespace cleave {

/// Outputs along an axis with `padding` zeros in all; 0 where the filter is larger.
inline int64_t conv_outputs(int64_t size, int64_t padding, int64_t filter, int64_t stride, int64_t dilation) {
  const int64_t room = size + padding - ((filter - 1) * dilation + 1);
  return room < 0 || stride < 1 ? 0 : room / stride + 1;
}

/// A convolution's numbers, which are sound.
struct ConvGeometry {
  Conv kind = Conv::none;
  uint32_t images = 0;
  uint32_t groups = 1, channels = 0, filters = 0;  ///< channels and filters of one group
  ConvAxisShape axes[kConvAxes] = {};              ///< depth, height, width
  uint32_t part = 0;                               ///< of the classes: those of one launch, or kAllClasses
};

/// All parts of the classes, as a backend without launches has them.
inline constexpr uint32_t kAllClasses = UINT32_MAX;

/// Channels of the gathered operand, of one group.
inline uint32_t gathered_channels(const ConvGeometry& g) {
  return g.kind == Conv::dgrad ? g.filters : g.channels;
}

/// Size of the gathered operand's images along an axis.
inline int32_t gathered_size(const ConvGeometry& g, uint32_t axis) {
  return g.kind == Conv::dgrad ? g.axes[axis].outputs : g.axes[axis].size;
}

/// Taps of a filter.
inline uint32_t taps(const ConvGeometry& g) {
  uint32_t count = 1;
  for (const ConvAxisShape& axis : g.axes) count *= uint32_t(axis.filter);
  return count;
}

/// A convolution's classes, the deepest first, or the one that they are fused into (in `columns`).
/// None where no pixel takes part.
struct ConvClasses {
  std::vector<ConvClass> list;
  FusedClasses columns;

  ClassTable table() const { return {list.data(), uint32_t(list.size())}; }
};

/// How many classes there are, of all parts.
inline size_t count_classes(const ConvGeometry& g, bool fuses_classes) {
  size_t count = 1;
  for (const ConvAxisShape& axis : g.axes)
    if (g.kind == Conv::dgrad && !fuses_classes) count *= residues(axis);
  return count;
}

/// Launches that share them.
inline uint32_t count_parts(const ConvGeometry& g, bool fuses_classes) {
  return uint32_t(ceil_div<size_t>(count_classes(g, fuses_classes), kMostClasses));
}

/// The classes of the geometry's part, without tiles. None, too, where they cannot be fused (fused_classes.h).
inline ConvClasses find_classes(const ConvGeometry& g, bool fuses_classes) {
  ConvClasses classes;
  if (fuses_classes) {
    ConvClass fused;
    if (fuse_classes(g.images, g.axes, g.channels, fused, classes.columns)) classes.list = {fused};
    return classes;
  }
  const size_t count = count_classes(g, fuses_classes);
  const size_t first = g.part == kAllClasses ? 0 : size_t(g.part) * kMostClasses;
  const size_t end = g.part == kAllClasses ? count : std::min(count, first + kMostClasses);
  for (size_t i = first; i < end; ++i) {
    const ConvClass c = make_class(g.kind, g.images, g.axes, uint32_t(i));
    if (c.rows > 0) classes.list.push_back(c);
  }
  std::stable_sort(classes.list.begin(), classes.list.end(), is_deeper);
  return classes;
}

inline ConvClasses deal_classes(const GemmConfig& c, const ConvGeometry& g) {
  ConvClasses classes = find_classes(g, c.conv.fuses_classes);
  deal_tiles(classes.list.data(), uint32_t(classes.list.size()), group_step(c), c.tile.k, gathered_channels(g),
             flattens_taps(c));
  return classes;
}

/// A tile without k blocks is one of several classes', even if there is no other class.
inline bool needs_class_walk(const ConvClasses& classes) {
  const std::vector<ConvClass>& list = classes.list;
  return list.size() > 1 || (!list.empty() && list.front().taps.size == 0);
}

/// Entries of the batch: groups, or taps.
inline uint32_t conv_batch(const GemmConfig& c, const ConvGeometry& g) {
  return c.conv.batches_taps ? taps(g) : g.groups;
}

/// Fused classes make one product of a dgrad. `c` needs only what names a kernel.
inline GemmSizes conv_sizes(const GemmConfig& c, const ConvGeometry& g, const ConvClasses& classes) {
  uint32_t pixels = g.images, outputs = g.images;
  for (const ConvAxisShape& axis : g.axes) {
    pixels *= uint32_t(axis.size);
    outputs *= uint32_t(axis.outputs);
  }
  if (c.conv.fuses_classes) {
    const ConvClass& fused = classes.list.front();
    return {fused.rows, g.channels * classes.columns.pixels.residues.size, fused.taps.size * g.filters, g.groups};
  }
  switch (g.kind) {
    case Conv::fprop:
      return {outputs, g.filters, taps(g) * g.channels, g.groups};
    case Conv::wgrad:
      return {g.filters, (c.conv.batches_taps ? 1 : taps(g)) * g.channels, outputs, conv_batch(c, g)};
    default:
      return {pixels, g.channels, taps(g) * g.filters, g.groups};
  }
}

/// K blocks of a tap, or elements (flattens_taps); of wgrad, columns.
inline uint32_t per_tap(const GemmConfig& c, const ConvGeometry& g) {
  const bool by_block = !flattens_taps(c) && gathers_a(c);
  return by_block ? ceil_div(gathered_channels(g), c.tile.k) : gathered_channels(g);
}

}  // namespace cleave
