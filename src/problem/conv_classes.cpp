#include "problem/conv_classes.h"

namespace cleave {

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
