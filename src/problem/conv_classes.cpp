#include "problem/conv_classes.h"

#include "cleave/conv.h"

namespace cleave {

namespace {

struct Axes {
  ConvAxisShape shapes[kConvAxes];

  explicit Axes(const ConvLayout& conv) {
    for (uint32_t i = 0; i < kConvAxes; ++i) {
      const ConvAxis& axis = conv.axes[i];
      shapes[i] = {.size = axis.size,
                   .outputs = int32_t(outputs(axis)),
                   .filter = axis.filter,
                   .stride = axis.stride,
                   .pad = axis.pad_begin,
                   .dilation = axis.dilation};
    }
  }
};

}  // namespace

std::vector<ConvClass> conv_classes(const ConvLayout& conv) {
  std::vector<ConvClass> classes(kMostClasses);
  classes.resize(make_classes(conv.kind, uint32_t(conv.images), Axes(conv).shapes, classes.data()));
  return classes;
}

bool put_side_by_side(const ConvLayout& conv, ConvClass& joint, ClassColumns& columns) {
  return put_side_by_side(uint32_t(conv.images), Axes(conv).shapes, uint32_t(conv.channels), joint,
                          columns);
}

uint32_t gathered_channels(const ConvLayout& conv) {
  return uint32_t(conv.kind == Conv::dgrad ? conv.filters : conv.channels);
}

}  // namespace cleave
