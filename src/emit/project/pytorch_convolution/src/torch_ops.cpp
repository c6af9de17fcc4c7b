#include "torch_ops.h"

#include <algorithm>
#include <optional>
#include <string>

#include "torch_autograd.h"
#include "torch_images.h"
#include "torch_place.h"
#include "view.h"

namespace emitted::operation {
namespace {

constexpr bool kHasBias = kOperation.bias != cleave::Bias::none;
constexpr Element kTypeOperands = element_of(kOperation.a.dtype);
constexpr Element kTypeResult = element_of(kOperation.d.dtype);
constexpr Element kTypeC = element_of(kOperation.c.dtype);
constexpr Element kTypeBias = element_of(kOperation.bias_dtype);
/// Channels of what fprop and dgrad make.
constexpr int64_t kResultChannels = kKind == Kind::fprop ? kFilters : kChannels;

/// What the operator is given, in the order of its schema: what the operation has.
struct Inputs {
  Shape input_size;  // of dgrad
  std::optional<Tensor> input, weight, grad_output, bias, c;
  double beta = 0, alpha = 1;

  explicit Inputs(StableIValue*& next) {
    if constexpr (kKind == Kind::dgrad)
      input_size = take<Shape>(next);
    else
      input = take<Tensor>(next);
    if constexpr (kKind != Kind::wgrad) weight = take<Tensor>(next);
    if constexpr (kKind != Kind::fprop) grad_output = take<Tensor>(next);
    if constexpr (kHasBias) bias = take<Tensor>(next);
    if constexpr (kOperation.has_c) c = take<Tensor>(next);
    if constexpr (kOperation.has_c) beta = take<double>(next);
    alpha = take<double>(next);
  }
};

/// One call: where, with what, and the shape of its result. A template, so that what the operation
/// lacks, and so its `Arguments`, is discarded.
template <class Arguments>
class TorchCall {
 public:
  explicit TorchCall(const Inputs& in);

  Tensor new_result() const { return new_images(shape_, kTypeResult, device_); }
  void set_result(const Tensor& result, const char* name);

  /// Enqueues on PyTorch's current stream.
  void run() const {
    if (std::ranges::find(shape_, 0) == shape_.end()) launch(arguments_, device_);
  }

 private:
  static int32_t device_of(const Inputs& in) {
    const bool by_weight = kKind == Kind::dgrad;
    const Tensor& leader = by_weight ? *in.weight : *in.input;
    if (!leader.is_cuda()) refuse(by_weight ? "weight" : "input", " is not on a CUDA device; move it there");
    return leader.get_device_index();
  }
  /// The shape of the images.
  Extents read_size(const Inputs& in);
  void check_shape(const Tensor& x, const char* name) const {
    if (!has_shape(x, shape_)) refuse(name, " is ", text(shape_of(x)), "; it must be ", text(shape_));
  }

  const int32_t device_;
  Arguments arguments_;
  Extents shape_;
};

template <class Arguments>
Extents TorchCall<Arguments>::read_size(const Inputs& in) {
  Extents size;
  if constexpr (kKind == Kind::dgrad) {
    const Shape& given = in.input_size;
    if (given.size() != kAxes + 2 || given[1] != kChannels ||
        std::ranges::any_of(given, [](int64_t extent) { return extent < 0; })) {
      refuse("input_size is ", text(given), "; it must have ", kAxes + 2, " dimensions and ", kChannels, " channels");
    }
    std::ranges::copy(given, size.begin());
  } else {
    const Images images = read_images(*in.input, "input", kTypeOperands, kChannels, device_);
    arguments_.x = images.data;
    arguments_.pixel_stride_x = images.stride;
    std::ranges::copy(in.input->sizes(), size.begin());
  }
  return size;
}

template <class Arguments>
TorchCall<Arguments>::TorchCall(const Inputs& in) : device_(device_of(in)) {
  Arguments& x = arguments_;
  const Extents size = read_size(in);
  const Extents outputs = outputs_shape(size);
  if constexpr (kKind != Kind::fprop) {
    const Images gradients = read_images(*in.grad_output, "grad_output", kTypeOperands, kFilters, device_);
    x.y = gradients.data;
    x.pixel_stride_y = gradients.stride;
    if (!has_shape(*in.grad_output, outputs)) {
      refuse("grad_output is ", text(shape_of(*in.grad_output)), "; images of ", text(size), " have outputs of ",
             text(outputs));
    }
  }
  if constexpr (kKind != Kind::wgrad) x.w = read_filters(*in.weight, "weight", kTypeOperands, device_);
  shape_ = kKind == Kind::fprop ? outputs : kKind == Kind::dgrad ? size : filters_shape();
  x.images = size[0];
  if constexpr (kDeep) x.depth = size[2];
  x.height = size[kAxes];
  x.width = size[kAxes + 1];
  x.alpha = float(in.alpha);
  if constexpr (kOperation.has_c) {
    x.beta = float(in.beta);
    check_shape(*in.c, "c");
    if constexpr (kKind == Kind::wgrad) {
      x.c = read_filters(*in.c, "c", kTypeC, device_);
    } else {
      const Images images = read_images(*in.c, "c", kTypeC, kResultChannels, device_);
      x.c = images.data;
      x.pixel_stride_c = images.stride;
    }
  }
  if constexpr (kHasBias) x.bias = read_bias(*in.bias, kTypeBias, kResultChannels, device_);
}

template <class Arguments>
void TorchCall<Arguments>::set_result(const Tensor& result, const char* name) {
  check_shape(result, name);
  if constexpr (kKind == Kind::wgrad) {
    arguments_.w = read_filters(result, name, kTypeResult, device_);
  } else {
    const Images images = read_images(result, name, kTypeResult, kResultChannels, device_);
    if constexpr (kKind == Kind::fprop) {
      arguments_.y = images.data;
      arguments_.pixel_stride_y = images.stride;
    } else {
      arguments_.x = images.data;
      arguments_.pixel_stride_x = images.stride;
    }
  }
}

}  // namespace

void run(StableIValue* stack, uint64_t, uint64_t) {
  StableIValue* next = stack;
  const Inputs inputs(next);
  TorchCall<Arguments> call(inputs);
  const Tensor result = call.new_result();
  call.set_result(result, "the result");
  call.run();
  stack[0] = torch::stable::detail::from(result);
}

void run_out(StableIValue* stack, uint64_t, uint64_t) {
  StableIValue* next = stack;
  const Inputs inputs(next);
  const auto out = take<Tensor>(next);
  refuse_gradients(stack);
  TorchCall<Arguments> call(inputs);
  call.set_result(out, "out");
  call.run();
  mark_written(out);
}

void refuse_cpu(StableIValue* stack, uint64_t count, uint64_t) {
  StableIValue* next = stack;
  const Inputs taken(next);
  while (next != stack + count) take<Tensor>(next);
  driver();  // throws, saying why, where there is none
  refuse("the operands are on the CPU; move them to a GPU");
}

}  // namespace emitted::operation
