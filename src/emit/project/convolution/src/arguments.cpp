#include <algorithm>
#include <initializer_list>
#include <limits>

#include "call.h"
#include "refuse.h"

namespace emitted::operation {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

/// Pixels of X or outputs, of all images.
void check_pixels(const char* name, std::initializer_list<int64_t> sizes) {
  int64_t all = 1;
  for (const int64_t size : sizes) {
    all *= size;
    if (all > kMost) refuse(name, " has more than ", kMost, " pixels; pass fewer images at a time");
  }
}

int64_t stride_or(int64_t given, int64_t packed) {
  return given == kPacked ? packed : given;
}

/// What a call says of where an operand of the epilogue function lies.
template <class Operand>
void place(cleave::EpilogueLayout& layout, const Operand& x, const cleave::GemmProblem& p) {
  if constexpr (requires { x.stride; }) layout.stride = x.stride;
  if constexpr (requires { x.pixel_stride; }) layout.stride = stride_or(x.pixel_stride, kResultChannels);
  if (kKind == Kind::wgrad && layout.shape == cleave::InputShape::row) layout.stride = 1;
  if (kKind == Kind::wgrad && layout.shape == cleave::InputShape::matrix) layout.stride = p.n;  // filters are packed
  place_groups(layout, p);
}

/// Has what the operation has not been discarded, since `Arguments` lacks it.
template <class Arguments>
Given read_call(const Arguments& x) {
  Given given;
  cleave::GemmProblem& p = given.problem;
  cleave::GemmArguments& pointers = given.arguments;
  if constexpr (kAxes == 3)
    set_images(x.images, {x.depth, x.height, x.width}, p.conv);
  else
    set_images(x.images, {x.height, x.width}, p.conv);
  pixel_stride_x(p) = stride_or(x.pixel_stride_x, kChannels);
  pixel_stride_y(p) = stride_or(x.pixel_stride_y, kFilters);
  if constexpr (kKind == Kind::fprop) {
    pointers.a = x.x;
    pointers.b = x.w;
    pointers.d = x.y;
  } else if constexpr (kKind == Kind::dgrad) {
    pointers.a = x.y;
    pointers.b = x.w;
    pointers.d = x.x;
  } else {
    pointers.a = x.y;
    pointers.b = x.x;
    pointers.d = x.w;
  }
  pointers.alpha = x.alpha;
  if constexpr (kOperation.has_c) {
    pointers.c = x.c;
    pointers.beta = x.beta;
    if constexpr (kKind != Kind::wgrad) p.c.stride_row = stride_or(x.pixel_stride_c, kResultChannels);
  }
  if constexpr (kOperation.bias != cleave::Bias::none) pointers.bias = x.bias;
  if constexpr (kOperation.scale_a.kind != cleave::Scaling::none) {
    pointers.scale_a = x.scale_a;
    pointers.scale_b = x.scale_b;
    p.scale_b.stride_row = x.scale_b_stride;
    p.scale_b.stride_batch = p.batch > 1 ? p.n * x.scale_b_stride : 0;
  }
  if constexpr (kOperation.has_scale_d) pointers.scale_d = x.scale_d;
  if constexpr (kOperation.has_amax) pointers.amax = x.amax;
  if constexpr (kOperation.epilogue.function != nullptr) {
    visit_inputs(x, [&](uint32_t i, const auto& input) {
      place(p.epilogue.inputs[i], input, p);
      pointers.epilogue_inputs[i].data = input.data;
      if constexpr (requires { input.value; }) pointers.epilogue_inputs[i].value = input.value;
    });
    visit_outputs(x, [&](uint32_t i, const auto& output) {
      place(p.epilogue.outputs[i], output, p);
      pointers.epilogue_outputs[i] = output.data;
    });
  }
  return given;
}

}  // namespace

int64_t Axis::outputs(int64_t pixels) const {
  return cleave::outputs({.size = int32_t(std::min(pixels, kMost)),
                          .filter = taps,
                          .stride = stride,
                          .pad_begin = pad_begin,
                          .pad_end = pad_end,
                          .dilation = dilation});
}

void place_groups(cleave::EpilogueLayout& layout, const cleave::GemmProblem& p) {
  using cleave::InputShape;
  const bool filters = kKind == Kind::wgrad, matrix = layout.shape == InputShape::matrix;
  layout.stride_batch = 0;
  if (p.batch == 1) return;
  if (filters && (matrix || layout.shape == InputShape::column)) layout.stride_batch = p.m * layout.stride;
  if (!filters && layout.shape == InputShape::row) layout.stride_batch = p.n * layout.stride;
  if (!filters && matrix) layout.stride_batch = p.n;
}

void set_images(int64_t images, const std::array<int64_t, kAxes>& size, cleave::ConvLayout& conv) {
  constexpr const char* kNames[] = {"depth", "height", "width"};
  if (images < 0 || images > kMost) refuse("images is ", images, "; it must be from 0 to ", kMost);
  conv.images = images;
  for (size_t i = 0; i < kAxes; ++i) {
    const char* const name = kNames[kFirstAxis + i];
    cleave::ConvAxis& axis = conv.axes[kFirstAxis + i];
    if (size[i] < 1 || size[i] > kMost) refuse(name, " is ", size[i], "; it must be from 1 to ", kMost);
    axis.size = int32_t(size[i]);
    if (outputs(axis) < 1)
      refuse(name, " is ", size[i], "; with its padding of ", axis.pad_begin, " and ", axis.pad_end,
             " it must be at least the ", int64_t(axis.filter - 1) * axis.dilation + 1, " pixels that a filter spans");
  }
  const auto& [depth, height, width] = conv.axes;
  check_pixels("x", {images, depth.size, height.size, width.size});
  check_pixels("y", {images, outputs(depth), outputs(height), outputs(width)});
}

Given read(const Arguments& arguments) {
  return read_call(arguments);
}

}  // namespace emitted::operation
