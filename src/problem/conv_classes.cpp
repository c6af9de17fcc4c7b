#include "problem/conv_classes.h"

#include "cleave/conv.h"

namespace cleave {

ConvGeometry conv_geometry(const ConvLayout& conv, int64_t groups) {
  ConvGeometry geometry{.kind = conv.kind,
                        .images = uint32_t(conv.images),
                        .groups = uint32_t(groups),
                        .channels = uint32_t(conv.channels),
                        .filters = uint32_t(conv.filters)};
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    const ConvAxis& axis = conv.axes[i];
    geometry.axes[i] = {.size = axis.size,
                        .outputs = int32_t(outputs(axis)),
                        .filter = axis.filter,
                        .stride = axis.stride,
                        .pad = axis.pad_begin,
                        .dilation = axis.dilation};
  }
  return geometry;
}

std::vector<ConvClass> conv_classes(const ConvLayout& conv) {
  return find_classes(conv_geometry(conv, 1), false).list;
}

bool put_side_by_side(const ConvLayout& conv, ConvClass& joint, ClassColumns& columns) {
  const ConvGeometry g = conv_geometry(conv, 1);
  return put_side_by_side(g.images, g.axes, g.channels, joint, columns);
}

uint32_t gathered_channels(const ConvLayout& conv) {
  return gathered_channels(conv_geometry(conv, 1));
}

}  // namespace cleave
