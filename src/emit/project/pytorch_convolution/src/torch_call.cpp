#include "torch_call.h"

#include <algorithm>
#include <array>

#include "torch_images.h"

namespace emitted::operation {
namespace {

/// The shape of the images, whether they are given or their gradient is made.
Shape read_size(const Inputs& in) {
  if constexpr (kKind != Kind::dgrad) return Shape(in.input->sizes());
  const auto& given = in.input_size;
  if (given.size() != kRank || given[1] != kChannels)
    refuse("input_size is ", text(given), "; it must have ", kRank, " dimensions and ", kChannels, " channels");
  return Shape(given);
}

Shape outputs_shape(const cleave::ConvLayout& conv) {
  Shape shape{conv.images, kFilters};
  for (size_t i = kFirstAxis; i < 3; ++i) shape.append(conv_outputs(conv.axes[i]));
  return shape;
}

/// The result, or C.
void* read_like_result(const Tensor& x, const char* name, const Shape& shape, int32_t device,
                       cleave::MatrixLayout& layout) {
  check_shape(x, name, shape);
  if constexpr (kKind == Kind::wgrad) return read_filters(x, name, layout.dtype, device);
  return read_images(x, name, layout.dtype, kResultChannels, device, layout.stride_row);
}

}  // namespace

TorchCall::TorchCall(const Inputs& in)
    : device_(kKind == Kind::dgrad ? gpu_of(*in.weight, "weight") : gpu_of(*in.input, "input")) {
  auto& [p, x] = given_;
  if constexpr (kKind != Kind::dgrad) {
    const void* const images = read_images(*in.input, "input", p.a.dtype, kChannels, device_, pixel_stride_x(p));
    (kKind == Kind::fprop ? x.a : x.b) = images;
  }
  const Shape size = read_size(in);
  std::array<int64_t, kAxes> pixels;
  std::copy_n(size.begin() + 2, kAxes, pixels.begin());
  set_images(size[0], pixels, p.conv);
  const Shape outputs = outputs_shape(p.conv);
  if constexpr (kKind != Kind::fprop) {
    const Tensor& y = *in.grad_output;
    x.a = read_images(y, "grad_output", p.a.dtype, kFilters, device_, pixel_stride_y(p));
    if (!has_shape(y, outputs))
      refuse("grad_output is ", text(y.sizes()), "; images of ", text(size), " have outputs of ", text(outputs));
  }
  if constexpr (kKind != Kind::wgrad) x.b = read_filters(*in.weight, "weight", p.b.dtype, device_);
  shape_ = kKind == Kind::fprop ? outputs : kKind == Kind::dgrad ? size : filters_shape();
  if constexpr (kOperation.has_c) x.c = read_like_result(*in.c, "c", shape_, device_, p.c);
  if constexpr (kOperation.bias != cleave::Bias::none)
    x.bias = read_line(*in.bias, "bias", cleave::torch_ops::type_number(p.bias_dtype), kResultChannels, device_);
  x.alpha = float(in.alpha);
  x.beta = float(in.beta);
}

Tensor TorchCall::new_result() const {
  return new_images(shape_, kOperation.d.dtype, device_);
}

void TorchCall::set_result(const Tensor& result, const char* name) {
  given_.arguments.d = read_like_result(result, name, shape_, device_, given_.problem.d);
}

}  // namespace emitted::operation
