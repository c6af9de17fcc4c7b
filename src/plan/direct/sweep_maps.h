// The tensor maps of a convolution line by line down the images (cleave/direct/sweep.h): gathered lines, and filters.
#pragma once

#include "cleave/config/direct_sweep.h"
#include "launch/gemm_maps.h"
#include "plan/direct/kernels.h"
#include "plan/direct/sweep.h"

namespace cleave {
namespace detail {

/// Channels, pixels of a line, lines, planes of all images. A box: what a warpgroup gathers of a line.
inline TensorMapShape map_of_lines(const GemmConfig& c, const DirectShape& shape, const ConvLayout& conv,
                                   int64_t stride) {
  const uint64_t pixel = uint64_t(stride) * size_of(c.operands.a), line = pixel * shape.gathered[1];
  return {.name = "a",
          .dtype = c.operands.a,
          .rank = 4,
          .size = {uint64_t(gathered_group(conv)), shape.gathered[1], shape.gathered[0],
                   uint64_t(conv.images) * shape.met_depth},
          .stride_bytes = {0, pixel, line, line * shape.gathered[0]},
          .box = {sweep_width(c) / size_of(c.operands.a), sweep_length(c, shape), 1, shape.together}};
}

/// Filters, whose batch are the taps. A box: those of one line's block of columns.
inline TensorMapShape map_of_blocks(const GemmConfig& c, const ConvLayout& conv, int64_t stride) {
  const uint32_t gathered = sweep_width(c) / size_of(c.operands.a);
  const bool back = conv.kind == Conv::dgrad;
  return matrix_map("b", c.operands.b, uint64_t(conv.channels), uint64_t(conv.filters), stride, conv.channels,
                    uint32_t(taps(conv)), back ? c.tile.n : gathered, back ? gathered : c.tile.n);
}

}  // namespace detail

/// As visit_matrix_maps.
template <class Visit>
void visit_sweep_maps(const Choice& choice, GemmParams& p, const Visit& visit) {
  const GemmConfig& c = choice.config;
  const ConvLayout& conv = choice.problem.conv;
  visit(p.map_a, p.a.data, [&] { return detail::map_of_lines(c, direct_sweep_shape(choice), conv, p.a.stride); });
  visit(p.map_b, p.b.data, [&] { return detail::map_of_blocks(c, conv, p.b.stride); });
}

}  // namespace cleave
