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
  for (size_t i = kFirstAxis; i < 3; ++i) shape.append(outputs(conv.axes[i]));
  return shape;
}

/// The result, or C.
void* read_like_result(const Tensor& x, const char* name, const Shape& shape, int32_t device,
                       cleave::MatrixLayout& layout) {
  check_shape(x, name, shape);
  if constexpr (kKind == Kind::wgrad) return read_filters(x, name, layout.dtype, device);
  return read_images(x, name, layout.dtype, kResultChannels, device, layout.stride_row);
}

/// The data of an input of the epilogue function, or of one of its outputs. What there is for each pixel, or for each
/// tap and channel, lies as the result does.
void* read_operand(const Tensor& x, const char* name, const Shape& shape, int32_t device,
                   cleave::EpilogueLayout& layout) {
  using cleave::InputShape;
  constexpr bool filters = kKind == Kind::wgrad;
  const auto line = [&](int64_t length) {
    check_tensor(x, name, layout.dtype, device);
    if (x.numel() != length || x.size(x.dim() == 1 ? 0 : filters ? 0 : 1) != length)
      refuse(name, " is ", text(x.sizes()), "; it must be (", length, ",)");
    layout.stride = x.dim() == 1 ? x.stride(0) : x.stride(filters ? 0 : 1);
    return x.data_ptr();
  };
  const auto plane = [&](int64_t outer, int64_t channels) {
    Shape expected{outer, channels};
    for (size_t i = 2; i < shape.size(); ++i) expected.append(shape[i]);
    check_tensor(x, name, layout.dtype, device);
    check_shape(x, name, expected);
    layout.stride = read_pixel_stride(x, name);
    if (filters && layout.stride != channels) refuse_order(x, name);
    if (filters) layout.stride = outer == 1 ? 1 : x.numel() / outer;
    return x.data_ptr();
  };
  switch (layout.shape) {
    case InputShape::scalar:
      return read_value(x, name, device, layout.dtype);
    case InputShape::row:
      return filters ? plane(1, shape[1]) : line(shape[1]);
    case InputShape::column:
      return filters ? line(shape[0]) : plane(shape[0], 1);
    case InputShape::matrix:
      break;
  }
  return plane(shape[0], shape[1]);
}

/// The shape of an output of the epilogue function: the result's, or what the result is reduced to, which is that of an
/// input.
Shape shape_of_output(cleave::InputShape output, const Shape& result) {
  using cleave::InputShape;
  constexpr size_t line = kKind == Kind::wgrad ? 0 : 1;  // the dimension that has a line of values
  if (output == InputShape::matrix) return result;
  if (output == InputShape::scalar) return {};
  if (output == (line == 0 ? InputShape::column : InputShape::row)) return {result[line]};
  Shape plane;
  for (size_t i = 0; i < result.size(); ++i) plane.append(i == line ? 1 : result[i]);
  return plane;
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
  if constexpr (kScaled) {
    x.scale_a = static_cast<const float*>(read_value(*in.scale_a, "scale_a", device_));
    const bool one = in.scale_b->numel() == 1;
    x.scale_b = static_cast<const float*>(
        one ? read_value(*in.scale_b, "scale_b", device_)
            : read_line(*in.scale_b, "scale_b", cleave::torch_ops::type_number(DType::f32), kFilters, device_));
    p.scale_b.stride_row = one ? 0 : 1;
    p.scale_b.stride_batch = one || p.batch == 1 ? 0 : p.n;
  }
  if constexpr (kOperation.has_scale_d)
    x.scale_d = static_cast<const float*>(read_value(*in.scale_d, "scale_d", device_));
  read_function(in.function, given_, [&](const Tensor& tensor, const char* name, cleave::EpilogueLayout& layout) {
    void* const data = read_operand(tensor, name, shape_, device_, layout);
    place_groups(layout, p);
    return data;
  });
  x.alpha = float(in.alpha);
  x.beta = float(in.beta);
}

Tensor TorchCall::new_result() const {
  return new_images(shape_, kOperation.d.dtype, device_);
}

void TorchCall::set_result(const Tensor& result, const char* name) {
  given_.arguments.d = read_like_result(result, name, shape_, device_, given_.problem.d);
}

Tensor TorchCall::new_output(uint32_t output) const {
  const cleave::EpilogueLayout& layout = kOperation.epilogue.outputs[output];
  const Shape shape = shape_of_output(layout.shape, shape_);
  if (shape.size() < kRank) return cleave::torch_ops::empty(shape, layout.dtype, device_);
  return new_images(shape, layout.dtype, device_);
}

void TorchCall::set_output(uint32_t output, const Tensor& made, const char* name) {
  cleave::EpilogueLayout& layout = given_.problem.epilogue.outputs[output];
  check_shape(made, name, shape_of_output(layout.shape, shape_));
  check_apart(made, name);
  given_.arguments.epilogue_outputs[output] = read_operand(made, name, shape_, device_, layout);
  place_groups(layout, given_.problem);
}

}  // namespace emitted::operation
