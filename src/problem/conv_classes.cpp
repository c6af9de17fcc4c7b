#include "problem/conv_classes.h"

namespace cleave {

std::vector<ConvClass> conv_classes(const ConvLayout& conv) {
  return find_classes(conv_geometry(conv, 1), false).list;
}

bool fuse_classes(const ConvLayout& conv, ConvClass& fused, FusedClasses& columns) {
  const ConvGeometry g = conv_geometry(conv, 1);
  return fuse_classes(g.images, g.axes, g.channels, fused, columns);
}

uint32_t gathered_channels(const ConvLayout& conv) {
  return gathered_channels(conv_geometry(conv, 1));
}

}  // namespace cleave
