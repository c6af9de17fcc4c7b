#include "torch_call.h"

#include "torch_matrices.h"
#include "torch_weight.h"

namespace emitted::operation {
namespace {

using cleave::Bias;
using cleave::GroupBounds;
using cleave::Grouping;
using cleave::Scaling;

/// Fills a call, tensor by tensor.
class Reader {
 public:
  Reader(const Inputs& in, int32_t device, Given& given)
      : in_(in), device_(device), p_(given.problem), x_(given.arguments) {}

  /// Returns the shape of D.
  Shape read_operands();
  void read_c(const Shape& shape_of_d);
  void read_bias();
  void read_scales();
  void read_zeros();

 private:
  Shape read_groups();
  [[noreturn]] void mismatch(const char* rule) const {
    refuse("a is ", text(in_.a.sizes()), " and b is ", text(in_.b.sizes()), "; ", rule);
  }

  const Inputs& in_;
  const int32_t device_;
  cleave::GemmProblem& p_;
  cleave::GemmArguments& x_;
  Matrix a_, b_;
};

Shape Reader::read_operands() {
  constexpr bool gated = is_gated(kOperation);
  a_ = read_matrix(in_.a, "a", kOrders.a, device_, p_.a);
  if constexpr (kPackedWeight)
    b_ = read_weight(in_, a_.columns, device_, x_);
  else
    b_ = read_matrix(in_.b, "b", kOrders.b, device_, p_.b);
  if (a_.columns != b_.rows) mismatch("a must have as many columns as b has rows");
  if (gated && b_.columns % 2 != 0) mismatch("b must have gates and as many columns for them to open");
  p_.m = a_.rows;
  p_.n = gated ? b_.columns / 2 : b_.columns;
  p_.k = a_.columns;
  x_.a = in_.a.data_ptr();
  x_.b = in_.b.data_ptr();
  if constexpr (kGrouped) return read_groups();
  if (a_.batch != b_.batch && a_.batch != 1 && b_.batch != 1) mismatch("their batches must be equal, or one of them 1");
  p_.batch = a_.batch == 1 ? b_.batch : a_.batch;
  return a_.batched || b_.batched ? Shape{p_.batch, p_.m, p_.n} : Shape{p_.m, p_.n};
}

Shape Reader::read_groups() {
  constexpr Grouping dimension = kGroups.dimension;
  constexpr bool indptr = kGroups.bounds == GroupBounds::indptr;
  const int32_t type = kGroups.wide ? aoti_torch_dtype_int64() : cleave::torch_ops::type_number(DType::i32);
  const int64_t groups = p_.batch = kHasSizes ? in_.sizes->numel() : in_.offsets->numel() - indptr;
  if constexpr (kHasOffsets) {
    const char* const name = indptr ? "indptr" : kHasSizes ? "starts" : "offs";
    x_.group_offsets = read_line(*in_.offsets, name, type, groups + indptr, device_);
  }
  if constexpr (kHasSizes)
    x_.group_sizes = read_line(*in_.sizes, kHasOffsets ? "sizes" : "counts", type, groups, device_);
  if constexpr (kMasked) {
    if (!a_.batched || !b_.batched || a_.batch != groups || b_.batch != groups)
      mismatch("both must have a matrix for each value of counts");
    stack(in_.a, "a", p_.a);
    p_.m = groups * a_.rows;
    p_.groups.spacing = std::max<int64_t>(a_.rows, 1);
    return {groups, a_.rows, p_.n};
  }
  if (dimension == Grouping::m && (a_.batched || !b_.batched || b_.batch != groups))
    mismatch("a must be a matrix, b one for each group");
  if (dimension == Grouping::n && (!a_.batched || b_.batched || a_.batch != groups))
    mismatch("b must be a matrix, a one for each group");
  if (dimension == Grouping::k && (a_.batched || b_.batched)) mismatch("both must be matrices");
  p_.groups.spacing = in_.alignment;
  return dimension == Grouping::k ? Shape{groups, p_.m, p_.n} : Shape{p_.m, p_.n};
}

/// C, or D itself.
void* read_like_d(const Tensor& x, const char* name, const Shape& shape_of_d, cleave::Order order, int32_t device,
                  cleave::MatrixLayout& layout) {
  check_shape(x, name, shape_of_d);
  read_matrix(x, name, order, device, layout);
  if (kMasked) stack(x, name, layout);
  return x.data_ptr();
}

void Reader::read_c(const Shape& shape_of_d) {
  x_.c = read_like_d(*in_.c, "c", shape_of_d, kOrders.d, device_, p_.c);
}

void Reader::read_bias() {
  constexpr bool by_row = kOperation.bias == Bias::row;
  constexpr bool batched = kGroups.dimension != (by_row ? Grouping::n : Grouping::m);
  x_.bias = read_packed(*in_.bias, "bias", p_.bias_dtype, by_row ? b_.columns : p_.m, batched ? p_.batch : 1, device_,
                        p_.bias_stride_batch);
}

void Reader::read_scales() {
  const int64_t of_a = entries_of_scale_a(p_, p_.scale_a.kind), of_b = entries_of_scale_b(p_, p_.scale_b.kind);
  const Tensor& a = *in_.scale_a;
  const void *data_a, *data_b = x_.scale_b;
  if constexpr (kOperation.scale_a.kind == Scaling::vector) {
    data_a = read_vector(a, "scale_a", DType::f32, p_.m, of_a, true, device_, p_.scale_a.stride_row,
                         p_.scale_a.stride_batch);
    if constexpr (!kPackedWeight)
      data_b = read_vector(*in_.scale_b, "scale_b", DType::f32, b_.columns, of_b, true, device_, p_.scale_b.stride_row,
                           p_.scale_b.stride_batch);
  } else {
    const auto blocks = [](int64_t size, int64_t block) { return cleave::ceil_div<int64_t>(size, block); };
    const int64_t k_blocks = blocks(p_.k, cleave::kScaleBlock);
    data_a = read_blocks(a, "scale_a", blocks(p_.m, p_.scale_a.rows), k_blocks, of_a, device_, p_.scale_a.stride_row,
                         p_.scale_a.stride_k, p_.scale_a.stride_batch);
    data_b = read_blocks(*in_.scale_b, "scale_b", k_blocks, blocks(b_.columns, p_.scale_b.rows), of_b, device_,
                         p_.scale_b.stride_k, p_.scale_b.stride_row, p_.scale_b.stride_batch);
  }
  x_.scale_a = static_cast<const float*>(data_a);
  x_.scale_b = static_cast<const float*>(data_b);
}

void Reader::read_zeros() {
  const auto line = [&](const Tensor& x, const char* name, int64_t length) {
    int64_t batch_stride = 0;
    return static_cast<const int32_t*>(read_packed(x, name, DType::i32, length, 1, device_, batch_stride));
  };
  x_.zero_b = line(*in_.azp_adj, "azp_adj", p_.n);
  if (in_.azp) x_.zero_a = line(*in_.azp, "azp", p_.m);
}

/// A matrix of D's shape, or one for all of a batch of them.
void* read_matrix_like_d(const Tensor& x, const char* name, const Shape& shape_of_d, bool may_broadcast, int32_t device,
                         cleave::EpilogueLayout& layout) {
  cleave::MatrixLayout matrix{.dtype = layout.dtype};
  const bool serves_all =
      may_broadcast && !kMasked && shape_of_d.size() == 3 && (x.dim() == 2 || (x.dim() == 3 && x.size(0) == 1));
  const Shape one = serves_all && x.dim() == 2 ? Shape{shape_of_d[1], shape_of_d[2]}
                                               : Shape{serves_all ? 1 : shape_of_d[0], shape_of_d[1], shape_of_d[2]};
  void* const data = read_like_d(x, name, serves_all ? one : shape_of_d, layout.order, device, matrix);
  layout.stride = layout.order == cleave::Order::row ? matrix.stride_row : matrix.stride_col;
  layout.stride_batch = matrix.stride_batch;
  return data;
}

/// The data of an input of the epilogue function, or of one of its outputs.
void* read_operand(const Tensor& x, const char* name, const Shape& shape_of_d, bool is_input,
                   const cleave::GemmProblem& p, int32_t device, cleave::EpilogueLayout& layout) {
  using cleave::InputShape;
  const auto line = [&](int64_t length, bool may_vary) {
    return read_vector(x, name, layout.dtype, length, may_vary ? p.batch : 1, false, device, layout.stride,
                       layout.stride_batch);
  };
  switch (layout.shape) {
    case InputShape::scalar:
      return line(1, true);
    case InputShape::row:
      return line(p.n, kGroups.dimension != Grouping::n);
    case InputShape::column:
      if constexpr (kMasked) {
        cleave::MatrixLayout column{.dtype = layout.dtype};
        check_shape(x, name, Shape{shape_of_d[0], shape_of_d[1], 1});
        column.stride_row = x.stride(1);
        check_tensor(x, name, layout.dtype, device);
        stack(x, name, column);
        layout.stride = column.stride_row;
        return x.data_ptr();
      }
      return line(p.m, kGroups.dimension != Grouping::m);
    case InputShape::matrix:
      break;
  }
  return read_matrix_like_d(x, name, shape_of_d, is_input, device, layout);
}

/// The shape of an output of the epilogue function: D's, or what D is reduced to, which is that of an input.
Shape shape_of_output(cleave::InputShape output, const Shape& shape_of_d, int64_t groups) {
  using cleave::InputShape;
  if (output == InputShape::matrix) return shape_of_d;
  const size_t rank = shape_of_d.size();
  const int64_t rows = output == InputShape::column ? shape_of_d[rank - 2] : 1;
  const int64_t columns = output == InputShape::row ? shape_of_d[rank - 1] : 1;
  if (rank == 3) return {shape_of_d[0], rows, columns};
  Shape shape;
  if (cleave::is_over_groups(kGroups.dimension, output)) shape.append(groups);
  if (output != InputShape::scalar) shape.append(rows * columns);
  return shape;
}

}  // namespace

TorchCall::TorchCall(const Inputs& in) : device_(gpu_of(in.a, "a")) {
  Reader reader(in, device_, given_);
  shape_ = reader.read_operands();
  if constexpr (kPackedWeight) place_weight(in, given_.problem);
  check_sizes(given_.problem);
  if constexpr (kOperation.has_c) reader.read_c(shape_);
  if constexpr (kOperation.bias != Bias::none) reader.read_bias();
  if constexpr (kScaled) reader.read_scales();
  if constexpr (kOperation.has_zero) reader.read_zeros();
  cleave::GemmArguments& x = given_.arguments;
  if constexpr (kOperation.has_scale_d)
    x.scale_d = static_cast<const float*>(read_value(*in.scale_d, "scale_d", device_));
  x.alpha = float(in.alpha);
  x.beta = float(in.beta);
  read_function(in.function, given_, [&](const Tensor& tensor, const char* name, cleave::EpilogueLayout& layout) {
    return read_operand(tensor, name, shape_, true, given_.problem, device_, layout);
  });
}

Tensor TorchCall::new_result() const {
  return cleave::torch_ops::empty(shape_, kOperation.d.dtype, device_, kOrders.d == cleave::Order::column);
}

void TorchCall::set_result(const Tensor& result, const char* name) {
  given_.arguments.d = read_like_d(result, name, shape_, kOrders.d, device_, given_.problem.d);
}

Tensor TorchCall::new_output(uint32_t output) const {
  const cleave::EpilogueLayout& layout = kOperation.epilogue.outputs[output];
  return cleave::torch_ops::empty(shape_of_output(layout.shape, shape_, given_.problem.batch), layout.dtype, device_,
                                  layout.order == cleave::Order::column);
}

void TorchCall::set_output(uint32_t output, const Tensor& made, const char* name) {
  cleave::GemmProblem& p = given_.problem;
  cleave::EpilogueLayout& layout = p.epilogue.outputs[output];
  check_shape(made, name, shape_of_output(layout.shape, shape_, p.batch));
  check_apart(made, name);
  given_.arguments.epilogue_outputs[output] = read_operand(made, name, shape_, false, p, device_, layout);
  if (layout.stride == 0) layout.stride = 1;  // of a single value
}

}  // namespace emitted::operation
