#include <initializer_list>
#include <limits>

#include "checks.h"

namespace emitted::operation {
namespace {

constexpr const cleave::ConvLayout& kConv = kOperation.conv;
constexpr bool kDeep = kConv.axes[0] != cleave::ConvAxis{};
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

/// Sets the pixels along an axis.
std::string read_axis(const char* name, int64_t pixels, cleave::ConvAxis& axis) {
  if (pixels < 1 || pixels > kMost) return text(name, " is ", pixels, "; it must be from 1 to ", kMost);
  axis.size = int32_t(pixels);
  if (conv_outputs(axis) >= 1) return {};
  return text(name, " is ", pixels, "; with its padding of ", axis.pad_begin, " and ", axis.pad_end,
              " it must be at least the ", int64_t(axis.filter - 1) * axis.dilation + 1, " pixels that a filter spans");
}

/// Pixels of X or outputs, of all images.
std::string check_pixels(const char* name, std::initializer_list<int64_t> sizes) {
  int64_t all = 1;
  for (const int64_t size : sizes) {
    all *= size;
    if (all > kMost) return text(name, " has more than ", kMost, " pixels; pass fewer images at a time");
  }
  return {};
}

template <class Arguments>
std::string read_sizes(const Arguments& x, cleave::ConvLayout& conv) {
  auto& [depth, height, width] = conv.axes;
  if (x.images < 0 || x.images > kMost) return text("images is ", x.images, "; it must be from 0 to ", kMost);
  conv.images = x.images;
  std::string fault;
  if constexpr (kDeep) fault = read_axis("depth", x.depth, depth);
  if (fault.empty()) fault = read_axis("height", x.height, height);
  if (fault.empty()) fault = read_axis("width", x.width, width);
  if (fault.empty()) fault = check_pixels("x", {x.images, depth.size, height.size, width.size});
  if (fault.empty())
    fault = check_pixels("y", {x.images, conv_outputs(depth), conv_outputs(height), conv_outputs(width)});
  return fault;
}

int64_t stride_or(int64_t given, int64_t packed) {
  return given == kPacked ? packed : given;
}

/// Has what the operation has not been discarded, since `Arguments` lacks it.
template <class Arguments>
std::string read_call(const Arguments& x, Given& given) {
  cleave::GemmProblem& p = given.problem;
  cleave::GemmArguments& pointers = given.arguments;
  std::string fault = read_sizes(x, p.conv);
  if (!fault.empty()) return fault;
  const int64_t of_x = stride_or(x.pixel_stride_x, kChannels);
  const int64_t of_y = stride_or(x.pixel_stride_y, kFilters);
  if constexpr (kKind == Kind::fprop) {
    p.a.stride_row = of_x;
    p.d.stride_row = of_y;
    pointers.a = x.x;
    pointers.b = x.w;
    pointers.d = x.y;
  } else if constexpr (kKind == Kind::dgrad) {
    p.a.stride_row = of_y;
    p.d.stride_row = of_x;
    pointers.a = x.y;
    pointers.b = x.w;
    pointers.d = x.x;
  } else {
    p.a.stride_col = of_y;
    p.b.stride_row = of_x;
    pointers.a = x.y;
    pointers.b = x.x;
    pointers.d = x.w;
  }
  pointers.alpha = x.alpha;
  if constexpr (kOperation.has_c) {
    pointers.c = x.c;
    pointers.beta = x.beta;
    p.c.stride_row = p.d.stride_row;
    if constexpr (kKind != Kind::wgrad)
      p.c.stride_row = stride_or(x.pixel_stride_c, kKind == Kind::fprop ? kFilters : kChannels);
  }
  if constexpr (kOperation.bias != cleave::Bias::none) pointers.bias = x.bias;
  return {};
}

}  // namespace

int64_t Axis::outputs(int64_t pixels) const {
  return cleave::conv_outputs(pixels, int64_t(pad_begin) + pad_end, taps, stride, dilation);
}

std::string read(const Arguments& arguments, Given& given) {
  return read_call(arguments, given);
}

}  // namespace emitted::operation
