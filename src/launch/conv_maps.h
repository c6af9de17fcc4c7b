// The tensor maps of a convolution's TMA kernel: pixels are gathered by im2col, filters are a matrix for
// each tap, and D's classes have maps of their own.
//
// Strides are read from the kernel's parameters.
#pragma once

#include <algorithm>

#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "launch/conv_grid.h"
#include "launch/gemm_maps.h"

namespace cleave {

/// Whether pixels come by im2col.
inline bool gathers_by_map(const GemmConfig& c) {
  return has_tma(c.family) && c.conv.kind != Conv::none && (!c.conv.gather || c.conv.fuses_classes);
}

namespace detail {

struct Images {
  int64_t channels, size[kConvAxes], count;
};

/// A tensor of images whose pixels are `pixel` elements apart; in depth, height and width `strides`
/// times as much, from image to image `image_stride` times.
inline Im2colMapShape image_map(const char* name, DType dtype, uint32_t axes, const Images& images, int64_t pixel,
                                const int64_t (&strides)[kConvAxes], int64_t image_stride) {
  const int64_t element = size_of(dtype);
  Im2colMapShape shape;
  shape.name = name;
  shape.dtype = dtype;
  shape.round_to_tf32 = dtype == DType::f32;
  shape.rank = axes + 2;
  shape.size[0] = uint64_t(images.channels);
  for (uint32_t i = 0; i < axes; ++i) {
    const uint32_t axis = kConvAxes - 1 - i;
    shape.size[1 + i] = uint64_t(images.size[axis]);
    shape.stride_bytes[1 + i] = uint64_t(strides[axis] * pixel * element);
  }
  shape.size[1 + axes] = uint64_t(images.count);
  shape.stride_bytes[1 + axes] = uint64_t(image_stride * pixel * element);
  return shape;
}

/// Where the class's last pixel meets the gathered tensor.
inline int32_t last_pixel(const ConvClass& of, uint32_t axis) {
  return of.axis(axis).first(of.pixels.extent[axis] - 1);
}

/// Where its first and last pixel do, the last one less the tensor's own last.
struct Corners {
  int32_t lower[kConvAxes], upper[kConvAxes];

  Corners(const ImageSize& size, const ConvClass& of) {
    for (uint32_t i = 0; i < kConvAxes; ++i) {
      lower[i] = of.origin[i];
      upper[i] = last_pixel(of, i) - (size[i] - 1);
    }
  }
};

}  // namespace detail

/// Whether cuTensorMapEncodeIm2col reaches all pixels of the class at all taps. `size`: of the gathered images.
inline bool is_mappable(const GemmConfig& c, const ImageSize& size, const ConvClass& of) {
  // What it allows with two axes, and with three.
  constexpr int32_t kLeastCorner[] = {-128, -16};
  constexpr int32_t kMostCorner[] = {127, 15};
  constexpr int32_t kMostOffset[] = {255, 31};
  constexpr int32_t kMostStride = 8;
  const uint32_t depth = c.conv.axes - 2;
  const detail::Corners corners(size, of);
  for (uint32_t i = 1 - depth; i < kConvAxes; ++i) {
    if (size[i] < 1 || of.row_stride[i] > kMostStride) return false;
    if (of.taps.size == 0) continue;
    for (const int32_t corner : {corners.lower[i], corners.upper[i]})
      if (corner < kLeastCorner[depth] || corner > kMostCorner[depth]) return false;
    if (of.axis(i).way(of.taps.extent[i] - 1) > kMostOffset[depth]) return false;
  }
  return true;
}

/// Whether the numbers of unaligned_gather.h reach all pixels and taps of the class.
inline bool reaches_packed(const ImageSize& size, const ConvClass& of) {
  constexpr int32_t kMost = kMostPackedPixels;
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    const int64_t span = int64_t(of.taps.extent[i] - 1) * of.tap_stride[i];
    if (size[i] >= kMost || span >= kMost || detail::last_pixel(of, i) >= 2 * kMost) return false;
  }
  return true;
}

/// Whether they reach from a pixel to all taps in bytes: 32 bits. Pixels are `pixel_stride` elements
/// apart; a filter may be larger than the image, which then lies in its padding.
inline bool reaches_image(const GemmConfig& c, const ConvLayout& conv, int64_t pixel_stride) {
  const ImageSize size = gathered_size(conv);
  int64_t bytes = pixel_stride * size_of(c.operands.a);
  for (uint32_t i = 0; i < kConvAxes && bytes < int64_t(1) << 31; ++i) {
    const ConvAxis& axis = conv.axes[i];
    bytes *= std::max<int64_t>(size[i], int64_t(axis.filter - 1) * axis.dilation + 1);
  }
  return !copies_unaligned(c) || bytes < int64_t(1) << 31;
}

/// From a gathered pixel to the next along its line. `p`: as the kernel sees it.
inline int64_t gathered_pixel_stride(const GemmConfig& c, const GemmProblem& p) {
  const MatrixLayout& gathered = gathers_a(c) ? p.a : p.b;
  return c.conv.turned ? gathered.stride_col : gathered.stride_row;
}

/// Whether the kernel, which may have been made for other sizes, serves these.
inline bool serves(const GemmConfig& c, const ConvLayout& conv, const ConvClasses& classes) {
  const std::vector<ConvClass>& list = classes.list;
  if (count_parts(conv, c.conv.fuses_classes) > 1) return false;
  if (list.size() > c.conv.class_capacity || (c.conv.fuses_classes && list.empty())) return false;
  if (copies_unaligned(c) && c.conv.axes != 2) return false;
  if (c.store.run_bytes > 0 && classes.columns.lines.length.divisor * size_of(c.epilogue.d) % c.store.run_bytes != 0)
    return false;
  if (c.schedule.grouping == Grouping::none && needs_class_walk(classes)) return false;
  const ImageSize size = gathered_size(conv);
  return std::all_of(list.begin(), list.end(), [&](const ConvClass& of) {
    return (!gathers_by_map(c) || is_mappable(c, size, of)) && (!copies_unaligned(c) || reaches_packed(size, of));
  });
}

/// The gathered operand, at tap 0 of a class; all of it, if the class has none.
inline Im2colMapShape map_of_pixels(const GemmConfig& c, const GemmProblem& view, const GemmParams& p,
                                    const ConvClass& of) {
  const ImageSize size = gathered_size(view.conv);
  detail::Images images{int64_t(gathered_channels(view.conv)) * groups_of(c, view), {}, view.conv.images};
  int64_t strides[kConvAxes], pixels = 1;
  for (uint32_t i = kConvAxes; i-- > 0;) {
    images.size[i] = size[i];
    strides[i] = pixels;
    pixels *= images.size[i];
  }
  Im2colMapShape shape = detail::image_map(gathers_a(c) ? "a" : "b", c.operands.a, c.conv.axes, images,
                                           gathers_a(c) ? p.a.stride : p.b.stride, strides, pixels);
  const detail::Corners corners(size, of);
  for (uint32_t i = 0; of.k_blocks > 0 && i < c.conv.axes; ++i) {
    const uint32_t axis = kConvAxes - 1 - i;
    shape.lower[i] = corners.lower[axis];
    shape.upper[i] = corners.upper[axis];
    shape.step[i] = uint32_t(of.row_stride[axis]);
  }
  shape.box_channels = pixel_line(c);
  shape.box_pixels = has_taps_along_k(c) ? pixels_of_tile(c) / sharers_of_pixels(c) : c.tile.k;
  return shape;
}

/// The filters, whose batch are the taps.
inline TensorMapShape map_of_taps(const GemmConfig& c, const GemmProblem& view, const GemmParams& p) {
  const ConvLayout& conv = view.conv;
  const bool is_a = c.conv.turned;
  return detail::matrix_map(is_a ? "a" : "b", c.operands.b, uint64_t(conv.channels),
                            uint64_t(conv.filters) * groups_of(c, view), is_a ? p.a.stride : p.b.stride, conv.channels,
                            uint32_t(taps(conv)),
                            (is_a ? line_bytes_of_a(c) : line_bytes_of_b(c)) / size_of(c.operands.b),
                            is_a ? box_rows(c.operands.a_major, c.tile.m, box_depth(c), c.cluster.multicast_n)
                                 : box_rows(c.operands.b_major, c.tile.n, box_depth(c), c.cluster.multicast_m));
}

/// A class's pixels of D.
inline Im2colMapShape map_of_outputs(const GemmConfig& c, const ConvLayout& conv, const GemmParams& p,
                                     const ConvClass& of) {
  detail::Images images{p.size.n, {}, conv.images};
  int64_t strides[kConvAxes];
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    images.size[i] = of.pixels.extent[i];
    strides[i] = of.output_stride[i];
  }
  Im2colMapShape shape =
      detail::image_map("d", c.epilogue.d, c.conv.axes, images, p.epilogue.d_stride, strides, of.outputs_per_image);
  shape.box_channels = store_box_columns(c);
  shape.box_pixels = 64;
  return shape;
}

/// Calls `visit(map, data, shape)` for the maps of A, B and D as matrices, as far as the kernel has
/// them: where they are, what they show, and a function that says how. `view`: the problem as the kernel sees it.
template <class Visit>
void visit_matrix_maps(const GemmConfig& c, const GemmProblem& view, GemmParams& p, const Visit& visit) {
  const uint32_t batch = uint32_t(view.batch);
  // TMA fetches filters tap by tap, unless all taps are one.
  const bool by_tap = has_taps_along_k(c) && !flattens_taps(c) && !c.conv.patches;
  if (has_map_a(c)) visit(p.map_a, p.a.data, [&] { return by_tap ? map_of_taps(c, view, p) : map_of_a(c, p, batch); });
  if (has_map_b(c)) {
    visit(p.map_b, p.b.data, [&] { return by_tap ? map_of_taps(c, view, p) : map_of_b(c, p, batch); });
  }
  if (has_map_d(c)) visit(p.map_d, p.epilogue.d, [&] { return map_of_d(c, p, batch); });
}

/// The same for the maps of a convolution's classes, which are set.
template <class Params, class Visit>
void visit_class_maps(const GemmConfig& c, const GemmProblem& view, Params& p, const Visit& visit) {
  for (uint32_t i = 0; i < p.class_count; ++i) {
    const ConvClass& of = p.classes[i];
    // Without taps nothing is gathered but zeros, through the first class's map.
    if (gathers_by_map(c) && (of.k_blocks > 0 || i == 0)) {
      visit(p.maps[i].gathered, gathers_a(c) ? p.a.data : p.b.data, [&] { return map_of_pixels(c, view, p, of); });
    }
    if (c.store.by_tma && scatters(c)) {
      const int64_t first = of.first_output * p.epilogue.d_stride * int64_t(size_of(c.epilogue.d));
      visit(p.maps[i].output, static_cast<const char*>(p.epilogue.d) + first,
            [&] { return map_of_outputs(c, view.conv, p, of); });
    }
  }
}

}  // namespace cleave
