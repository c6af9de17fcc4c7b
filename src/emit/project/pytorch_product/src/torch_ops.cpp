#include "torch_ops.h"

#include <algorithm>
#include <optional>
#include <string>

#include "config.h"
#include "launch/product.h"
#include "torch_autograd.h"
#include "torch_matrices.h"
#include "torch_place.h"

namespace emitted::operation {
namespace {

using cleave::Bias;
using cleave::GroupBounds;
using cleave::Grouping;
using cleave::Scaling;

constexpr const cleave::GroupLayout& kGroups = kOperation.groups;
constexpr bool kGrouped = kGroups.dimension != Grouping::none;
constexpr bool kHasSizes = kGrouped && (kGroups.bounds == GroupBounds::counts || kGroups.bounds == GroupBounds::starts);
constexpr bool kHasOffsets = kGrouped && kGroups.bounds != GroupBounds::counts;
constexpr bool kSpaced = kGrouped && cleave::is_spaced(kGroups.bounds);
/// Each group has the first rows of a matrix of its own.
constexpr bool kMasked = kGroups.dimension == Grouping::m && kGroups.bounds == GroupBounds::counts;
constexpr bool kScaled = kOperation.scale_a.kind != Scaling::none;
constexpr bool kGated = kOperation.activation == cleave::Activation::swiglu;

constexpr Element kTypeA = element_of(kOperation.a.dtype), kTypeB = element_of(kOperation.b.dtype);
constexpr Element kTypeC = element_of(kOperation.c.dtype), kTypeD = element_of(kOperation.d.dtype);
constexpr Element kTypeBias = element_of(kOperation.bias_dtype);
constexpr Element kInt32 = element_of(cleave::DType::i32);
constexpr Element kTypeIndex = kGroups.wide ? Element{"int64", aoti_torch_dtype_int64} : kInt32;

constexpr const char* name_of_offsets() {
  switch (kGroups.bounds) {
    case GroupBounds::indptr:
      return "indptr";
    case GroupBounds::starts:
      return "starts";
    default:
      return "offs";
  }
}

/// What the operator is given, in the order of its schema: what the operation has.
struct Inputs {
  Tensor a, b;
  std::optional<Tensor> scale_a, scale_b, offsets, sizes, bias, c, scale_d, azp_adj, azp;
  double beta = 0, alpha = 1;
  int64_t alignment = kGroups.spacing;

  explicit Inputs(StableIValue*& next) : a(take<Tensor>(next)), b(take<Tensor>(next)) {
    if constexpr (kScaled) scale_a = take<Tensor>(next);
    if constexpr (kScaled) scale_b = take<Tensor>(next);
    if constexpr (kHasOffsets) offsets = take<Tensor>(next);
    if constexpr (kHasSizes) sizes = take<Tensor>(next);
    if constexpr (kOperation.bias != Bias::none) bias = take<Tensor>(next);
    if constexpr (kOperation.has_c) c = take<Tensor>(next);
    if constexpr (kOperation.has_scale_d) scale_d = take<Tensor>(next);
    if constexpr (kOperation.has_zero) azp_adj = take<Tensor>(next);
    if constexpr (kOperation.has_zero) azp = take<std::optional<Tensor>>(next);
    if constexpr (kOperation.has_c) beta = take<double>(next);
    if constexpr (kSpaced && !kMasked) alignment = take<int64_t>(next);
    alpha = take<double>(next);
  }
};

/// Offsets, sizes or numbers of groups.
template <class Index>
const Index* read_index(const Tensor& x, const char* name, int64_t size, int32_t device) {
  check_tensor(x, name, kTypeIndex, device);
  if (x.dim() != 1 || x.size(0) != size || (size > 1 && x.stride(0) != 1))
    refuse(name, " is ", text(shape_of(x)), "; it must be ", text(Shape{size}), ", without gaps");
  return static_cast<const Index*>(x.data_ptr());
}

/// Fills a call's arguments, tensor by tensor. A template, so that what the operation lacks, and so
/// its `Arguments`, is discarded.
template <class Arguments>
class Reader {
 public:
  Reader(const Inputs& in, int32_t device) : in_(in), device_(device) {}

  void read_operands();
  void read_epilogue();
  void read_output(const Tensor& d, const char* name);
  void read_amax(const Tensor& amax) {
    if constexpr (kOperation.has_amax)
      x_.amax = static_cast<float*>(read_vector(amax, "amax", kFloat32, 1, 1, true, device_).data);
  }

  const Arguments& arguments() const { return x_; }
  const Shape& d_shape() const { return d_shape_; }

 private:
  void read_groups();
  void read_scales();
  Matrix read_like_d(const Tensor& x, const char* name, const Element& element) const;
  [[noreturn]] void mismatch(const char* rule) const {
    refuse("a is ", text(shape_of(in_.a)), " and b is ", text(shape_of(in_.b)), "; ", rule);
  }
  int64_t entries() const {
    if constexpr (kGrouped)
      return x_.groups;
    else
      return x_.batch;
  }

  const Inputs& in_;
  const int32_t device_;
  Matrix a_, b_;
  Arguments x_;
  Shape d_shape_;
};

template <class Arguments>
void Reader<Arguments>::read_operands() {
  a_ = read_matrix(in_.a, "a", kTypeA, kOrders.a, device_);
  b_ = read_matrix(in_.b, "b", kTypeB, kOrders.b, device_);
  if (a_.columns != b_.rows) mismatch("a must have as many columns as b has rows");
  if (kGated && b_.columns % 2 != 0) mismatch("b must have gates and as many columns for them to open");
  x_.m = a_.rows;
  x_.n = kGated ? b_.columns / 2 : b_.columns;
  x_.k = a_.columns;
  d_shape_ = {x_.m, x_.n};
  x_.lda = a_.leading;
  if constexpr (kGrouped) {
    read_groups();
  } else {
    if (a_.batch != b_.batch && a_.batch != 1 && b_.batch != 1)
      mismatch("their batches must be equal, or one of them 1");
    x_.batch = a_.batch == 1 ? b_.batch : a_.batch;
    if (a_.batched || b_.batched) d_shape_.insert(d_shape_.begin(), x_.batch);
  }
  x_.a = a_.data;
  x_.b = b_.data;
  x_.ldb = b_.leading;
  if constexpr (requires { x_.batch_stride_a; }) x_.batch_stride_a = a_.batch_stride;
  if constexpr (requires { x_.batch_stride_b; }) x_.batch_stride_b = b_.batch_stride;
}

template <class Arguments>
void Reader<Arguments>::read_groups() {
  constexpr bool indptr = kGroups.bounds == GroupBounds::indptr;
  x_.groups = kHasSizes ? in_.sizes->numel() : in_.offsets->numel() - indptr;
  if constexpr (kMasked) {
    if (!a_.batched || !b_.batched || a_.batch != x_.groups || b_.batch != x_.groups)
      mismatch("both must have a matrix for each value of counts");
    x_.m = x_.groups * a_.rows;
    x_.spacing = std::max<int64_t>(a_.rows, 1);
    x_.lda = stacked(a_, in_.a, "a").leading;
    d_shape_ = {x_.groups, a_.rows, x_.n};
  } else {
    constexpr Grouping dimension = kGroups.dimension;
    if (dimension == Grouping::m && (a_.batched || !b_.batched || b_.batch != x_.groups))
      mismatch("a must be a matrix, b one for each group");
    if (dimension == Grouping::n && (!a_.batched || b_.batched || a_.batch != x_.groups))
      mismatch("b must be a matrix, a one for each group");
    if (dimension == Grouping::k && (a_.batched || b_.batched)) mismatch("both must be matrices");
    if (dimension == Grouping::k) d_shape_.insert(d_shape_.begin(), x_.groups);
    if constexpr (kSpaced) x_.spacing = in_.alignment;
  }
  using Index = std::conditional_t<kGroups.wide, int64_t, int32_t>;
  if constexpr (kHasOffsets) {
    x_.offsets = read_index<Index>(*in_.offsets, name_of_offsets(), x_.groups + indptr, device_);
  }
  if constexpr (kHasSizes) {
    constexpr bool counts = kGroups.bounds == GroupBounds::counts;
    x_.sizes = read_index<Index>(*in_.sizes, counts ? "counts" : "sizes", x_.groups, device_);
  }
}

template <class Arguments>
void Reader<Arguments>::read_epilogue() {
  x_.alpha = float(in_.alpha);
  if constexpr (kOperation.has_c) {
    const Matrix c = read_like_d(*in_.c, "c", kTypeC);
    x_.c = c.data;
    x_.ldc = c.leading;
    if constexpr (requires { x_.batch_stride_c; }) x_.batch_stride_c = c.batch_stride;
    x_.beta = float(in_.beta);
  }
  if constexpr (kOperation.bias != Bias::none) {
    constexpr bool batched = requires { x_.batch_stride_bias; };
    const int64_t length = kOperation.bias == Bias::row ? b_.columns : x_.m;
    const Vector bias = read_vector(*in_.bias, "bias", kTypeBias, length, batched ? entries() : 1, false, device_);
    x_.bias = packed(bias, "bias");
    if constexpr (batched) x_.batch_stride_bias = bias.batch_stride;
  }
  if constexpr (kScaled) read_scales();
  if constexpr (kOperation.has_scale_d) {
    const Vector scale_d = read_vector(*in_.scale_d, "scale_d", kFloat32, 1, 1, true, device_);
    x_.scale_d = static_cast<const float*>(scale_d.data);
  }
  if constexpr (kOperation.has_zero) {
    const auto zeros = [&](const Tensor& x, const char* name, int64_t length) {
      const Vector vector = read_vector(x, name, kInt32, length, 1, false, device_);
      return static_cast<const int32_t*>(packed(vector, name));
    };
    x_.zero_b = zeros(*in_.azp_adj, "azp_adj", x_.n);
    if (in_.azp) x_.zero_a = zeros(*in_.azp, "azp", x_.m);
  }
}

template <class Arguments>
void Reader<Arguments>::read_scales() {
  constexpr bool batched_a = requires { x_.batch_stride_scale_a; };
  constexpr bool batched_b = requires { x_.batch_stride_scale_b; };
  const int64_t of_a = batched_a ? entries() : 1, of_b = batched_b ? entries() : 1;
  if constexpr (kOperation.scale_a.kind == Scaling::vector) {
    const Vector a = read_vector(*in_.scale_a, "scale_a", kFloat32, x_.m, of_a, true, device_);
    const Vector b = read_vector(*in_.scale_b, "scale_b", kFloat32, b_.columns, of_b, true, device_);
    x_.scale_a = static_cast<const float*>(a.data);
    x_.scale_a_stride = a.stride;
    x_.scale_b = static_cast<const float*>(b.data);
    x_.scale_b_stride = b.stride;
    if constexpr (batched_a) x_.batch_stride_scale_a = a.batch_stride;
    if constexpr (batched_b) x_.batch_stride_scale_b = b.batch_stride;
  } else {
    const auto blocks = [](int64_t size, int64_t block) { return cleave::ceil_div<int64_t>(size, block); };
    const int64_t k_blocks = blocks(x_.k, cleave::kScaleBlock);
    const Grid a = read_grid(*in_.scale_a, "scale_a", blocks(x_.m, kOperation.scale_a.rows), k_blocks, of_a, device_);
    const Grid b =
        read_grid(*in_.scale_b, "scale_b", k_blocks, blocks(b_.columns, kOperation.scale_b.rows), of_b, device_);
    x_.scale_a = a.data;
    x_.scale_a_stride_row = a.stride_row;
    x_.scale_a_stride_k = a.stride_column;
    x_.scale_b = b.data;
    x_.scale_b_stride_k = b.stride_row;
    x_.scale_b_stride_col = b.stride_column;
    if constexpr (batched_a) x_.batch_stride_scale_a = a.batch_stride;
    if constexpr (batched_b) x_.batch_stride_scale_b = b.batch_stride;
  }
}

template <class Arguments>
Matrix Reader<Arguments>::read_like_d(const Tensor& x, const char* name, const Element& element) const {
  if (!has_shape(x, d_shape_)) refuse(name, " is ", text(shape_of(x)), "; it must be ", text(d_shape_));
  const Matrix matrix = read_matrix(x, name, element, kOrders.d, device_);
  return kMasked ? stacked(matrix, x, name) : matrix;
}

template <class Arguments>
void Reader<Arguments>::read_output(const Tensor& d, const char* name) {
  const Matrix matrix = read_like_d(d, name, kTypeD);
  x_.d = matrix.data;
  x_.ldd = matrix.leading;
  if constexpr (requires { x_.batch_stride_d; }) x_.batch_stride_d = matrix.batch_stride;
}

/// One call, of an operator that makes D or of one that is given it.
class TorchCall {
 public:
  explicit TorchCall(const Inputs& in) : device_(device_of(in.a)), reader_(in, device_) {
    reader_.read_operands();
    reader_.read_epilogue();
  }

  Tensor new_d() const { return new_matrix(reader_.d_shape(), kTypeD, kOrders.d, device_); }
  Tensor new_amax() const {
    constexpr int64_t one = 1;
    const Tensor amax = new_matrix({&one, 1}, kFloat32, Order::row, device_);
    TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(amax.get()));
    return amax;
  }
  void set_d(const Tensor& d, const char* name) { reader_.read_output(d, name); }
  void set_amax(const Tensor& amax) { reader_.read_amax(amax); }

  /// Enqueues on PyTorch's current stream.
  void run() const {
    const Shape& shape = reader_.d_shape();
    if (std::ranges::find(shape, 0) == shape.end()) launch(reader_.arguments(), device_);
  }

 private:
  static int32_t device_of(const Tensor& a) {
    if (!a.is_cuda()) refuse("a is not on a CUDA device; move it there");
    return a.get_device_index();
  }

  const int32_t device_;
  Reader<Arguments> reader_;
};

}  // namespace

void run(StableIValue* stack, uint64_t, uint64_t) {
  StableIValue* next = stack;
  const Inputs inputs(next);
  TorchCall call(inputs);
  const Tensor d = call.new_d();
  call.set_d(d, "d");
  if constexpr (kOperation.has_amax) {
    const Tensor amax = call.new_amax();
    call.set_amax(amax);
    call.run();
    stack[1] = torch::stable::detail::from(amax);
  } else {
    call.run();
  }
  stack[0] = torch::stable::detail::from(d);
}

void run_out(StableIValue* stack, uint64_t, uint64_t) {
  StableIValue* next = stack;
  const Inputs inputs(next);
  const auto out = take<Tensor>(next);
  std::optional<Tensor> amax;
  if constexpr (kOperation.has_amax) amax = take<Tensor>(next);
  refuse_gradients(stack);
  TorchCall call(inputs);
  call.set_d(out, "out");
  if (amax) call.set_amax(*amax);
  call.run();
  mark_written(out);
  if (amax) mark_written(*amax);
}

void refuse_cpu(StableIValue* stack, uint64_t count, uint64_t) {
  StableIValue* next = stack;
  const Inputs taken(next);
  while (next != stack + count) take<Tensor>(next);
  driver();  // throws, saying why, where there is none
  refuse("the operands are on the CPU; move them to a GPU");
}

}  // namespace emitted::operation
