// What the choices of direct kernels (kernel/conv_direct.h) of all directions share.
#pragma once

#include "cleave/conv.h"
#include "cleave/conv/direct_conv.h"
#include "plan/choice/choice.h"
#include "problem/placement.h"

namespace cleave {

inline constexpr int32_t kMostDirectStride = 4;

inline DirectAxis direct_axis(Conv kind, const ConvAxis& axis) {
  return {.taps = uint32_t(axis.filter),
          .stride = uint32_t(axis.stride),
          .dilation = uint32_t(axis.filter > 1 ? axis.dilation : 1),
          .phase = kind == Conv::dgrad ? uint32_t(axis.pad_begin % axis.stride) : 0};
}

/// Groups of 1, 2, 4 or 8 channels and as many filters, of a line or an image.
inline bool has_narrow_groups(const GemmProblem& p) {
  const int64_t group = p.conv.channels;
  const bool widths = group == p.conv.filters && (group == 1 || group == 2 || group == 4 || group == 8);
  if (!widths || p.batch < 2 || p.conv.axes[0] != ConvAxis{}) return false;
  for (const ConvAxis& axis : p.conv.axes)
    if (axis.stride > kMostDirectStride) return false;
  return is_wide_float(p.a.dtype);
}

/// Whether numbers of 32 bits reach along a line and down, with as many taps, as far from each other.
bool are_countable(const ConvLayout& conv, uint32_t most_taps, int32_t most_dilation);

/// Parts of `total` that are as even as they can be, `most` of them: none is empty.
template <class Integer>
Integer even_parts(Integer total, Integer most) {
  return ceil_div(total, ceil_div(total, most));
}

/// CTAs that an SM has room for.
uint32_t ctas_of_sm(const GemmConfig& c);

/// Deals `tiles` to CTAs, so many at a time, each of which keeps to one of `blocks` of channels: all its tiles have the
/// same filters.
void deal_tiles(Choice& choice, int64_t tiles, uint32_t blocks, uint32_t resident);

/// What a weight gradient of 16 bits reads.
inline double gradient_bytes(const ConvLayout& conv) {
  return 2 * (double(image_pixels(conv)) * conv.channels + double(output_pixels(conv)) * conv.filters);
}

/// Groups' channels, and filters, follow each other: `width` of each.
inline bool groups_adjoin(const MatrixLayout& layout, int64_t width) {
  return layout.stride_batch == width;
}

/// The same of all that a convolution, or its data gradient, reads and makes.
bool groups_adjoin(const GemmProblem& problem);

/// Whether a kernel that does not split K may be taken.
bool wants_direct(const GemmProblem& problem);

/// Whether narrow groups' pixels can be made one by one, by threads that have some channels each: fprop, dgrad.
bool serves_narrow_groups(const GemmProblem& problem);

/// The same of weight gradients.
bool serves_narrow_gradients(const GemmProblem& problem);

/// Channels that threads load and store at once, at most: a power of two.
uint32_t narrow_vector(const GemmProblem& problem, uint32_t most);

/// What such a kernel reads and writes at least, but for filters.
double narrow_bytes(const Choice& choice);

/// Channels of a pixel that can be loaded at once: a power of two. `stride`: to the next pixel.
inline uint32_t aligned_channels(const MatrixLayout& layout, int64_t stride) {
  return common_alignment(layout.alignment | uint64_t(stride) * size_of(layout.dtype)) / size_of(layout.dtype);
}

/// Channels of a group, of what is gathered and of what is made.
inline int64_t gathered_group(const ConvLayout& conv) {
  return conv.kind == Conv::dgrad ? conv.filters : conv.channels;
}
inline int64_t made_group(const ConvLayout& conv) {
  return conv.kind == Conv::dgrad ? conv.channels : conv.filters;
}

/// What every direct kernel is told. `vector`: channels of a thread.
inline GemmConfig direct_config(const GemmProblem& p, const Spec& spec, uint32_t vector) {
  GemmConfig c;
  c.family = spec.family;
  c.operands.a = c.operands.b = p.a.dtype;
  c.operands.precision = p.precision;
  c.tile = {.m = spec.tile_m, .n = spec.tile_n, .k = 1, .stages = 1};
  c.epilogue.d = p.d.dtype;
  c.epilogue.has_c = p.has_c;
  c.epilogue.c = p.has_c ? p.c.dtype : p.d.dtype;
  c.epilogue.bias = p.bias;
  c.epilogue.bias_dtype = p.bias == Bias::none ? p.d.dtype : p.bias_dtype;
  c.store.by_tma = false;
  c.conv.kind = p.conv.kind;
  c.direct.vector = vector;
  c.direct.group = uint32_t(p.conv.channels);
  c.direct.height = direct_axis(p.conv.kind, p.conv.axes[1]);
  c.direct.width = direct_axis(p.conv.kind, p.conv.axes[2]);
  return c;
}

/// Along an axis: pixels of what is made, or (wgrad) outputs.
inline uint32_t pixels_made(Conv kind, const ConvAxis& axis) {
  return uint32_t(kind == Conv::dgrad ? axis.size : outputs(axis));
}

/// Planes of images with depth, where those that are made are tiles' images.
inline void set_depth(DirectShape& shape, const ConvLayout& conv) {
  const ConvAxis& axis = conv.axes[0];
  shape.depths = FastDivmod(pixels_made(conv.kind, axis));
  shape.met_depth = uint32_t(conv.kind == Conv::dgrad ? outputs(axis) : axis.size);
  shape.pad_depth = axis.pad_begin;
}

/// Zeros before what is gathered, where that is met tap by tap: a data gradient meets the filter's taps the other way
/// round.
inline int32_t padding_before(Conv kind, const ConvAxis& axis) {
  return kind == Conv::dgrad ? (axis.filter - 1) * axis.dilation - axis.pad_begin : axis.pad_begin;
}

/// The images' sizes; how CTAs share them is the direction's to say.
inline DirectShape direct_images(const ConvLayout& conv) {
  DirectShape shape;
  for (uint32_t i = 0; i < 2; ++i) {
    const ConvAxis& axis = conv.axes[1 + i];
    shape.made[i] = pixels_made(conv.kind, axis);
    shape.gathered[i] = uint32_t(conv.kind == Conv::dgrad ? outputs(axis) : axis.size);
    shape.pad[i] = axis.pad_begin;
  }
  return shape;
}

/// The same, with planes, and what is gathered begins with padding_before.
inline DirectShape direct_padded_images(const ConvLayout& conv) {
  DirectShape shape = direct_images(conv);
  for (uint32_t i = 0; i < 2; ++i) shape.pad[i] = padding_before(conv.kind, conv.axes[1 + i]);
  set_depth(shape, conv);
  shape.pad_depth = padding_before(conv.kind, conv.axes[0]);
  return shape;
}

}  // namespace cleave
