#include "operands/conv_operands.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/refuse.h"
#include "cleave/conv.h"
#include "cleave/core/saturate.h"
#include "cleave/names.h"
#include "operands/epilogue_operands.h"
#include "operands/scales.h"
#include "problem/rules.h"

namespace cleave {
namespace {

constexpr std::span<const DType> kForwardTypes = kMultipliedTypes;
constexpr std::span<const DType> kGradientTypes = kFloatTypes;

int32_t narrow(const char* name, int64_t value) {
  if (value < -kMaxSize || value > kMaxSize) {
    refuse_value("{} is {}; at most 2^31 - 1 is served", name, value);
  }
  return int32_t(value);
}

/// Fills a ConvCall, tensor by tensor.
class Builder {
 public:
  Builder(const ConvTensors& tensors, const ConvOptions& options, ConvCall& call)
      : t_(tensors),
        options_(options),
        call_(call),
        p_(call.problem),
        arguments_(call.arguments),
        a_(options.kind == Conv::fprop ? *tensors.input : *tensors.grad_output),
        b_(options.kind == Conv::wgrad ? *tensors.input : *tensors.weight),
        grad_output_name_(options.transposed ? "input" : "grad_output"),
        a_name_(options.kind == Conv::fprop ? "input" : grad_output_name_),
        b_name_(options.kind == Conv::wgrad ? "input" : "weight") {
    call.ndim = options.axes + 2;
  }

  /// The argument whose device is everybody's.
  const char* leader() const { return a_name_; }

  void check_operands() const {
    const auto types = options_.kind == Conv::fprop ? kForwardTypes : kGradientTypes;
    check(a_, a_name_, form(types));
    check(b_, b_name_, form(types));
    if (a_.dtype != b_.dtype && !(is_fp8(a_.dtype) && is_fp8(b_.dtype))) {
      refuse_type("{} is {} and {} is {}; convert one of them", a_name_, to_string(a_.dtype), b_name_,
                  to_string(b_.dtype));
    }
  }

  void find_geometry() {
    if (t_.grad_output) y_ = shape_of(*t_.grad_output);
    w_ = t_.weight ? shape_of(*t_.weight) : options_.size;
    check_groups();
    if (t_.input) {
      x_ = shape_of(*t_.input);
    } else {
      x_ = options_.transposed ? transposed_size() : options_.size;
    }
    check_channels();
    conv_ = {.kind = options_.kind,
             .images = x_[0],
             .channels = w_[1],
             .filters = w_[0] / options_.groups,
             .division = options_.division};
    for (int i = 0; i < options_.axes; ++i) {
      conv_.axes[first_axis() + i] = make_axis(i);
    }
    Messages broken;
    if (!check_geometry(conv_, broken)) refuse_value("{}", fmt::join(broken, "; "));
    if (t_.grad_output) check_grad_output();
  }

  void place_operands() {
    const DType type = a_.dtype;
    p_ = implicit_gemm(conv_, options_.groups, type, type);
    p_.b.dtype = b_.dtype;
    p_.epilogue = epilogue_for(options_.activation, t_.epilogue.function);
    p_.device = a_.device;
    arguments_.a = a_.data;
    arguments_.b = b_.data;
    p_.a.alignment = alignment_of(a_.data);
    p_.b.alignment = alignment_of(b_.data);
    const int64_t filters = conv_.filters;
    switch (options_.kind) {
      case Conv::none:
        break;
      case Conv::fprop:
        call_.shape = output_shape();
        p_.a.stride_row = pixel_stride_of(a_, a_name_);
        p_.b.stride_col = filter_stride_of(b_, b_name_);
        p_.b.stride_batch = saturating_product(filters, p_.b.stride_col);
        break;
      case Conv::dgrad:
        call_.shape = x_;
        p_.a.stride_row = pixel_stride_of(a_, a_name_);
        p_.b.stride_row = filter_stride_of(b_, b_name_);
        p_.b.stride_batch = saturating_product(filters, p_.b.stride_row);
        break;
      case Conv::wgrad:
        call_.shape = w_;
        p_.a.stride_col = pixel_stride_of(a_, a_name_);
        p_.b.stride_row = pixel_stride_of(b_, b_name_);
        break;
    }
  }

  void place_c() {
    const Operand& c = *t_.c;
    check(c, "c", form(kAnyType));
    p_.has_c = true;
    p_.c = layout_like_d(c, "c", false);
    arguments_.c = c.data;
  }

  void place_bias() {
    const Operand& bias = *t_.bias;
    check(bias, "bias", {1, 1, kFloatTypes});
    check_line(bias, "bias", call_.shape[1], ", a value for each channel of the output");
    p_.bias = Bias::row;
    p_.bias_dtype = bias.dtype;
    if (p_.batch > 1) p_.bias_stride_batch = p_.n;
    arguments_.bias = bias.data;
  }

  void place_scale_factors() {
    check_both_scales(t_.scale_a, t_.scale_b);
    arguments_.scale_a = one_value(*t_.scale_a, "scale_a", a_.device, a_name_);
    const Operand& scales = *t_.scale_b;
    check(scales, "scale_b", {0, Operand::kMaxRank, kFloat32});
    const std::optional<int64_t> length = line_length(scales);
    if (length != 1 && length != w_[0]) {
      refuse_value("scale_b is {}; it must be contiguous, one value or one for each of the {} filters",
                   shape_text(scales), w_[0]);
    }
    arguments_.scale_b = static_cast<const float*>(scales.data);
    const bool by_filter = length != 1;
    p_.scale_a = {.kind = Scaling::vector};
    p_.scale_b = {
        .kind = Scaling::vector, .stride_row = by_filter ? 1 : 0, .stride_batch = by_filter && p_.batch > 1 ? p_.n : 0};
  }

  void place_d() {
    const std::optional<DType> d_type = asked_type(options_.d_type, t_.epilogue.function);
    if (!t_.out) {
      p_.d.dtype = d_type.value_or(default_output(p_));
      return;
    }
    const Operand& out = *t_.out;
    check(out, "out", form(kAnyType, true));
    check_type_of_out(out, d_type);
    p_.d = layout_like_d(out, "out", true);
    arguments_.d = out.data;
  }

 private:
  void check(const Operand& operand, const char* name, const Form& form) const {
    check_form(operand, name, form, a_.device, a_name_);
  }
  Form form(std::span<const DType> types, bool written = false) const {
    return {call_.ndim, call_.ndim, types, written};
  }
  /// Where the tensors' axes begin in ConvLayout::axes.
  size_t first_axis() const { return std::size(conv_.axes) - options_.axes; }

  Extents shape_of(const Operand& operand) const {
    Extents shape{};
    std::copy_n(operand.shape, call_.ndim, shape.begin());
    return shape;
  }

  std::string text(const Extents& shape) const {
    return fmt::format("({})", fmt::join(shape.begin(), shape.begin() + call_.ndim, ", "));
  }

  void check_groups() const {
    if (options_.groups < 1 || options_.groups > kMaxSize) {
      refuse_value("groups is {}; it must be at least 1, and divide the channels", options_.groups);
    }
    if (w_[0] % options_.groups == 0) return;
    refuse_value("{} is {}, and groups is {}, which does not divide its first dimension; pass groups that do",
                 options_.kind == Conv::wgrad ? "weight_size" : "weight", text(w_), options_.groups);
  }

  /// The image of which the given outputs and no more than output_padding is left over.
  Extents transposed_size() const {
    Extents size{y_[0], saturating_product(w_[1], options_.groups)};
    for (int i = 0; i < options_.axes; ++i) {
      const int64_t outputs = narrow("the size of input", y_[2 + i]);
      const int64_t filter = narrow("the size of weight", w_[2 + i]);
      const int64_t stride = narrow("stride", options_.stride[i]);
      const int64_t reach = (outputs - 1) * stride + (filter - 1) * narrow("dilation", options_.dilation[i]) + 1 +
                            narrow("output_padding", options_.output_padding[i]);
      const int64_t padding =
          int64_t(narrow("padding", options_.pad_begin[i])) + narrow("padding", options_.pad_end[i]);
      if (options_.output_padding[i] < 0 || (stride > 0 && options_.output_padding[i] >= stride)) {
        refuse_value("output_padding is {}, but the stride is {}; pass 0 or more, and less than the stride",
                     options_.output_padding[i], stride);
      }
      size[2 + i] = reach - padding;
      if (size[2 + i] > 0) continue;
      refuse_value(
          "the output has a size of {}: input is {}, so the filters reach {} pixels, of which padding takes {}. Pass a "
          "larger input or less padding",
          size[2 + i], text(y_), reach, padding);
    }
    return size;
  }

  void check_channels() const {
    // A product with groups could overflow, as x may be numbers without a tensor.
    if (x_[1] % options_.groups == 0 && x_[1] / options_.groups == w_[1]) return;
    const int last = options_.axes + 1;
    const bool channels_are_last = x_[last] % options_.groups == 0 && x_[last] / options_.groups == w_[last];
    const char* const remedy = channels_are_last
                                   ? "Sizes have channels second, also where memory has them last: transpose both"
                                   : "Pass one with other channels, or other groups";
    refuse_value("{0} is {1} and {2} is {3}, with groups = {4}: {2} is for {4} x {5} channels, but {0} has {6}. {7}",
                 options_.kind == Conv::dgrad ? "input_size" : "input", text(x_),
                 options_.kind == Conv::wgrad ? "weight_size" : "weight", text(w_), options_.groups, w_[1], x_[1],
                 remedy);
  }

  ConvAxis make_axis(int i) const {
    ConvAxis axis{.size = narrow("the size of the image", x_[2 + i]),
                  .filter = narrow("the size of the filter", w_[2 + i]),
                  .stride = narrow("stride", options_.stride[i]),
                  .pad_begin = narrow("padding", options_.pad_begin[i]),
                  .pad_end = narrow("padding", options_.pad_end[i]),
                  .dilation = narrow("dilation", options_.dilation[i])};
    if (!options_.same) return axis;
    if (axis.stride != 1) {
      refuse_value(
          "padding is \"same\", but the stride is {}: only with a stride of 1 are there as many outputs as pixels. "
          "Pass the padding as numbers",
          axis.stride);
    }
    const int64_t around = (int64_t(axis.filter) - 1) * axis.dilation;
    axis.pad_begin = narrow("padding", around / 2);
    axis.pad_end = narrow("padding", around - around / 2);
    return axis;
  }

  Extents output_shape() const {
    Extents shape{x_[0], w_[0]};
    for (int i = 0; i < options_.axes; ++i) shape[2 + i] = outputs(conv_.axes[first_axis() + i]);
    return shape;
  }

  void check_grad_output() const {
    const Extents expected = output_shape();
    if (y_ == expected) return;
    if (options_.transposed) {
      refuse_value("input is {} and weight is {}: input's channels ({}) must match weight's first dimension ({})",
                   text(y_), text(w_), y_[1], w_[0]);
    }
    refuse_value(
        "grad_output is {}; the output of an input {} and a weight {} is {}. Pass its gradient, or other sizes",
        text(y_), text(x_), text(w_), text(expected));
  }

  int64_t pixel_stride_of(const Operand& x, const char* name, bool written = false) const {
    if (const auto stride = pixel_stride(x)) return *stride;
    refuse_order(x, name, written,
                 "a pixel's channels must be neighbours, and its pixels equally far apart, image by image");
  }

  int64_t filter_stride_of(const Operand& w, const char* name, bool written = false) const {
    if (const auto stride = filter_stride(w)) return *stride;
    refuse_order(w, name, written, "a tap's channels must be neighbours, and a filter's taps packed");
  }

  [[noreturn]] void refuse_order(const Operand& x, const char* name, bool written, const char* what) const {
    refuse_value("{} is {} with strides ({}), but {}. Pass {}{}", name, shape_text(x),
                 fmt::join(x.stride, x.stride + x.ndim, ", "), what, channels_last_remedy(name, options_.axes, written),
                 options_.may_convert ? ", or convert=True to have it copied" : "");
  }

  MatrixLayout layout_like_d(const Operand& x, const char* name, bool written) const {
    if (shape_of(x) != call_.shape) {
      refuse_value("{} is {}; it must be {}", name, shape_text(x), text(call_.shape));
    }
    MatrixLayout layout = p_.d;
    layout.dtype = x.dtype;
    layout.alignment = alignment_of(x.data);
    if (options_.kind == Conv::wgrad) {
      layout.stride_row = filter_stride_of(x, name, written);
      layout.stride_batch = saturating_product(conv_.filters, layout.stride_row);
    } else {
      layout.stride_row = pixel_stride_of(x, name, written);
    }
    return layout;
  }

  const ConvTensors& t_;
  const ConvOptions& options_;
  ConvCall& call_;
  GemmProblem& p_;
  GemmArguments& arguments_;
  const Operand &a_, &b_;
  const char *grad_output_name_, *a_name_, *b_name_;
  Extents x_{}, w_{}, y_{};  // shapes of input, weight and output
  ConvLayout conv_;
};

}  // namespace

ConvCall make_call(const ConvTensors& tensors, const ConvOptions& options) {
  ConvCall call;
  Builder builder(tensors, options, call);
  builder.check_operands();
  builder.find_geometry();
  builder.place_operands();
  if (tensors.c) builder.place_c();
  if (tensors.bias) builder.place_bias();
  if (tensors.scale_a || tensors.scale_b) builder.place_scale_factors();
  builder.place_d();
  place_range(tensors.scale_d, tensors.amax, builder.leader(), call);
  if (tensors.epilogue.function != nullptr) place_epilogue(tensors.epilogue, call);
  set_plan_options(options.plan, call.problem);
  return call;
}

}  // namespace cleave
