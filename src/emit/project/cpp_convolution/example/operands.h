// The example's tensors, and what their convolution is.
#pragma once

#include "call.h"
#include "epilogue.h"
#include "tensor.h"

namespace emitted::operation::example {

/// A place along the axes: a pixel, an output or a tap; or how many there are.
struct Place {
  int64_t at[3];

  int64_t product() const { return at[0] * at[1] * at[2]; }
  /// Its number, in a grid of that size.
  int64_t number(const Place& grid) const { return (at[0] * grid.at[1] + at[1]) * grid.at[2] + at[2]; }
};

/// What `count` counts along each axis.
template <class Count>
Place along_axes(const Count& count) {
  const auto& [depth, height, width] = kOperation.conv.axes;
  return {{count(depth), count(height), count(width)}};
}

inline Place draw(const Place& grid) {
  return {{draw(grid.at[0]), draw(grid.at[1]), draw(grid.at[2])}};
}

template <class Visit>
void for_each_place(const Place& grid, const Visit& visit) {
  for (int64_t i = 0; i < grid.at[0]; ++i)
    for (int64_t j = 0; j < grid.at[1]; ++j)
      for (int64_t k = 0; k < grid.at[2]; ++k) visit(Place{{i, j, k}});
}

/// Whether output and tap meet at a pixel.
inline bool meet(const Place& output, const Place& tap, const Place& size, Place& pixel) {
  for (int i = 0; i < 3; ++i) {
    const cleave::ConvAxis& axis = kOperation.conv.axes[i];
    pixel.at[i] = output.at[i] * axis.stride + tap.at[i] * axis.dilation - axis.pad_begin;
    if (pixel.at[i] < 0 || pixel.at[i] >= size.at[i]) return false;
  }
  return true;
}

/// Packed tensors of the planned sizes.
class Operands {
  static constexpr const cleave::ConvLayout& kConv = kOperation.conv;
  static constexpr int64_t channels_ = kConv.channels, filters_ = kConv.filters;
  const Place size_ = along_axes([](const cleave::ConvAxis& axis) { return axis.size; });
  const Place taps_ = along_axes([](const cleave::ConvAxis& axis) { return axis.filter; });
  const Place outputs_ = along_axes([](const cleave::ConvAxis& axis) { return cleave::outputs(axis); });
  const double depth_ = kKind == Kind::fprop   ? double(taps_.product() * channels_)
                        : kKind == Kind::dgrad ? double(taps_.product() * filters_)
                                               : double(kConv.images * outputs_.product());
  const float alpha_ = kOperation.d.dtype == cleave::DType::i32 ? 1.0f : float(1 / std::sqrt(depth_));

  Tensor x_{kKind == Kind::dgrad ? kOperation.d.dtype : kOperation.a.dtype, kConv.images * size_.product() * kChannels};
  Tensor w_{kKind == Kind::wgrad ? kOperation.d.dtype : kOperation.a.dtype, kFilters * taps_.product() * channels_};
  Tensor y_{kKind == Kind::fprop ? kOperation.d.dtype : kOperation.a.dtype,
            kConv.images * outputs_.product() * kFilters};
  Tensor c_{kOperation.c.dtype,
            std::max({kConv.images * size_.product() * kChannels, kFilters * taps_.product() * channels_,
                      kConv.images * outputs_.product() * kFilters})};
  Tensor bias_{kOperation.bias_dtype, std::max(kChannels, kFilters)};
  Tensor scale_a_{cleave::DType::f32, 1}, scale_b_{cleave::DType::f32, kFilters};
  Tensor scale_d_{cleave::DType::f32, 1}, amax_{cleave::DType::f32, 1};
  Epilogue epilogue_{read(sizes()).problem};

 public:
  Tensor& d = kKind == Kind::fprop ? y_ : kKind == Kind::dgrad ? x_ : w_;

  Operands() {
    for (Tensor* tensor : {&x_, &w_, &y_})
      if (tensor != &d) tensor->fill();
    c_.fill(-1, 1);
    bias_.fill(-1, 1);
    for (Tensor* scale : {&scale_a_, &scale_b_, &scale_d_}) scale->fill(0.5f, 1.5f);
  }

  Arguments arguments() const { return fill(sizes()); }

  Sample draw_sample() const {
    Sum sum;
    Place pixel;
    int64_t index = 0, channel = 0, row = 0, column = 0;
    const int64_t group = example::draw(kGroups), image = example::draw(kConv.images);
    const int64_t f = group * filters_ + example::draw(filters_), c = example::draw(channels_);
    if constexpr (kKind == Kind::fprop) {
      const Place output = example::draw(outputs_);
      for_each_place(taps_, [&](const Place& tap) {
        if (!meet(output, tap, size_, pixel)) return;
        for (int64_t i = 0; i < channels_; ++i)
          sum.add(x_[at_x(image, pixel, group * channels_ + i)] * w_[at_w(f, tap, i)]);
      });
      index = at_y(image, output, f);
      channel = f;
      row = image * outputs_.product() + output.number(outputs_);
      column = f - group * filters_;
    } else if constexpr (kKind == Kind::dgrad) {
      const Place made = example::draw(size_);
      for_each_place(outputs_, [&](const Place& output) {
        for_each_place(taps_, [&](const Place& tap) {
          if (!meet(output, tap, size_, pixel) || pixel.number(size_) != made.number(size_)) return;
          for (int64_t i = group * filters_; i < (group + 1) * filters_; ++i)
            sum.add(y_[at_y(image, output, i)] * w_[at_w(i, tap, c)]);
        });
      });
      channel = group * channels_ + c;
      index = at_x(image, made, channel);
      row = image * size_.product() + made.number(size_);
      column = c;
    } else {
      const Place tap = example::draw(taps_);
      for (int64_t i = 0; i < kConv.images; ++i) {
        for_each_place(outputs_, [&](const Place& output) {
          if (!meet(output, tap, size_, pixel)) return;
          sum.add(x_[at_x(i, pixel, group * channels_ + c)] * y_[at_y(i, output, f)]);
        });
      }
      index = at_w(f, tap, c);
      row = f - group * filters_;
      column = tap.number(taps_) * channels_ + c;
    }
    if constexpr (kOperation.scale_a.kind != cleave::Scaling::none) sum.scale(scale_a_[0] * scale_b_[channel]);
    sum.scale(alpha_);
    if (kOperation.has_c) sum.value += c_[index];
    if (kOperation.bias != cleave::Bias::none) sum.value += bias_[channel];
    Sample sample{.d = {}, .index = index};
    epilogue_({group, row, column}, sum, Sum(), sample);
    if constexpr (kOperation.has_scale_d) sample.d.scale(1 / scale_d_[0]);
    return sample;
  }

  /// What the operation has made.
  void download() {
    d.download();
    epilogue_.download();
  }

 private:
  template <class Arguments = Arguments>
  Arguments sizes() const {
    Arguments x;
    x.images = kConv.images;
    if constexpr (requires { x.depth; }) x.depth = size_.at[0];
    x.height = size_.at[1];
    x.width = size_.at[2];
    return x;
  }

  template <class Arguments>
  Arguments fill(Arguments x) const {
    x.x = x_.device();
    x.w = w_.device();
    x.y = y_.device();
    x.alpha = alpha_;
    if constexpr (kOperation.has_c) {
      x.c = c_.device();
      x.beta = 1;
    }
    if constexpr (kOperation.bias != cleave::Bias::none) x.bias = bias_.device();
    if constexpr (kOperation.scale_a.kind != cleave::Scaling::none) {
      x.scale_a = scale_a_.device<const float>();
      x.scale_b = scale_b_.device<const float>();
      x.scale_b_stride = 1;
    }
    if constexpr (kOperation.has_scale_d) x.scale_d = scale_d_.device<const float>();
    if constexpr (kOperation.has_amax) x.amax = amax_.device<float>();
    epilogue_.fill(x);
    return x;
  }

  int64_t at_x(int64_t image, const Place& pixel, int64_t channel) const {
    return (image * size_.product() + pixel.number(size_)) * kChannels + channel;
  }
  int64_t at_w(int64_t filter, const Place& tap, int64_t channel) const {
    return (filter * taps_.product() + tap.number(taps_)) * channels_ + channel;
  }
  int64_t at_y(int64_t image, const Place& output, int64_t filter) const {
    return (image * outputs_.product() + output.number(outputs_)) * kFilters + filter;
  }
};

}  // namespace emitted::operation::example
