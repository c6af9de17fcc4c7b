// What a kernel computes of a convolution: the sizes of its product, and its classes with their tiles.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "cleave/config/clusters.h"
#include "cleave/config/gemm_config.h"
#include "cleave/config/loads.h"
#include "cleave/problem.h"
#include "launch/fuse_classes.h"
#include "launch/gemm_grid.h"

namespace cleave {

/// Channels of the gathered operand, of one group.
inline uint32_t gathered_channels(const ConvLayout& conv) {
  return uint32_t(conv.kind == Conv::dgrad ? conv.filters : conv.channels);
}

/// Size of the gathered operand's images along each axis.
using ImageSize = std::array<int32_t, kConvAxes>;
inline ImageSize gathered_size(const ConvLayout& conv) {
  ImageSize size;
  for (uint32_t i = 0; i < kConvAxes; ++i)
    size[i] = conv.kind == Conv::dgrad ? int32_t(outputs(conv.axes[i])) : conv.axes[i].size;
  return size;
}

/// What m, n and k of a convolution's problem are.
struct ProductSizes {
  int64_t m, n, k;
};
inline ProductSizes product_sizes(const ConvLayout& conv) {
  switch (conv.kind) {
    case Conv::none:
      break;
    case Conv::fprop:
      return {output_pixels(conv), conv.filters, saturating_product(taps(conv), conv.channels)};
    case Conv::dgrad:
      return {image_pixels(conv), conv.channels, saturating_product(taps(conv), conv.filters)};
    case Conv::wgrad:
      return {conv.filters, saturating_product(taps(conv), conv.channels), output_pixels(conv)};
  }
  return {};
}

/// The groups of a problem as its kernel sees it (conv_view): a batch of taps is of one group.
inline uint32_t groups_of(const GemmConfig& c, const GemmProblem& view) {
  return c.conv.batches_taps ? 1 : uint32_t(view.batch);
}

/// A convolution's classes, the deepest first, or the one that they are fused into (in `columns`).
/// None where no pixel takes part.
struct ConvClasses {
  std::vector<ConvClass> list;
  FusedClasses columns;

  ClassTable table() const { return {list.data(), uint32_t(list.size())}; }
};

/// How many classes there are, of all parts.
inline size_t count_classes(const ConvLayout& conv, bool fuses_classes) {
  size_t count = 1;
  for (const ConvAxis& axis : conv.axes)
    if (conv.kind == Conv::dgrad && !fuses_classes) count *= residues(axis);
  return count;
}

/// Launches that share them: each has a part.
inline uint32_t count_parts(const ConvLayout& conv, bool fuses_classes) {
  return uint32_t(ceil_div<size_t>(count_classes(conv, fuses_classes), kMostClasses));
}

/// All parts of the classes, as a backend without launches has them.
inline constexpr uint32_t kAllClasses = UINT32_MAX;

/// The classes of one part, without tiles. None, too, where they cannot be fused (fuse_classes.h).
inline ConvClasses find_classes(const ConvLayout& conv, bool fuses_classes = false, uint32_t part = kAllClasses) {
  ConvClasses classes;
  if (fuses_classes) {
    ConvClass fused;
    if (fuse_classes(conv, fused, classes.columns)) classes.list = {fused};
    return classes;
  }
  const size_t count = count_classes(conv, fuses_classes);
  const size_t first = part == kAllClasses ? 0 : size_t(part) * kMostClasses;
  const size_t end = part == kAllClasses ? count : std::min(count, first + kMostClasses);
  for (size_t i = first; i < end; ++i) {
    const ConvClass c = make_class(conv, uint32_t(i));
    if (c.rows > 0) classes.list.push_back(c);
  }
  std::stable_sort(classes.list.begin(), classes.list.end(), is_deeper);
  return classes;
}

inline ConvClasses deal_classes(const GemmConfig& c, const ConvLayout& conv, uint32_t part) {
  ConvClasses classes = find_classes(conv, c.conv.fuses_classes, part);
  // Half lines are flattened, whole ones of each tap.
  const uint32_t channels = gathered_channels(conv);
  deal_tiles(classes.list.data(), uint32_t(classes.list.size()), group_step(c), c.tile.k,
             c.conv.half_lines ? round_up(channels, pixel_line(c)) : channels, flattens_taps(c) || c.conv.half_lines);
  return classes;
}

/// A tile without k blocks is one of several classes', even if there is no other class.
inline bool needs_class_walk(const ConvClasses& classes) {
  const std::vector<ConvClass>& list = classes.list;
  return list.size() > 1 || (!list.empty() && list.front().taps.size == 0);
}

/// K blocks of a tap, or lines of one (half_lines), or elements (flattens_taps); of wgrad, columns.
inline uint32_t per_tap(const GemmConfig& c, const ConvLayout& conv) {
  const bool by_block = !flattens_taps(c) && has_taps_along_k(c);
  return by_block ? ceil_div(gathered_channels(conv), box_depth(c)) : gathered_channels(conv);
}

}  // namespace cleave
