#include "operands/quantize_operands.h"

#include <algorithm>

#include "base/refuse.h"
#include "cleave/names.h"
#include "operands/packed.h"

namespace cleave {
namespace {

/// Scales as a matrix: one column of them may come as a vector, one value in any shape. Their
/// strides are free.
MatrixLayout scale_layout(const Operand& scale, const MatrixShape& shape, const char* name) {
  MatrixLayout layout{.dtype = DType::f32, .alignment = sizeof(float)};
  const bool one = shape.rows == 1 && shape.cols == 1 && line_length(scale) == 1;
  if (scale.ndim == 2 && scale.rows() == shape.rows && scale.columns() == shape.cols) {
    layout.stride_row = scale.stride[0];
    layout.stride_col = scale.stride[1];
  } else if (scale.ndim == 1 && shape.cols == 1 && scale.shape[0] == shape.rows) {
    layout.stride_row = scale.stride[0];
  } else if (!one) {
    refuse_value("{} is {}; it must be ({}, {}) for this granularity", name, shape_text(scale), shape.rows, shape.cols);
  }
  return layout;
}

class Builder {
 public:
  Builder(const QuantizeTensors& tensors, const QuantizeOptions& options, QuantizeCall& call)
      : t_(tensors), options_(options), p_(call.problem), arguments_(call.arguments) {}

  void place_x() {
    check(*t_.x, "x", {2, 2, kFloatTypes});
    p_.rows = t_.x->rows();
    p_.cols = t_.x->columns();
    p_.x = row_major(*t_.x, "x");
    p_.device = t_.x->device;
    p_.granularity = options_.granularity;
    p_.given_scale = options_.given_scale;
    p_.symmetric = options_.symmetric;
    p_.ue8m0_scale = options_.ue8m0;
    arguments_.x = t_.x->data;
  }

  void place_q() {
    if (!t_.q) {
      if (std::ranges::find(kQuantizedTypes, *options_.dtype) == kQuantizedTypes.end()) {
        refuse_type("dtype is {}; it must be {}", to_string(*options_.dtype), types_text(kQuantizedTypes));
      }
      p_.q = packed_layout(*options_.dtype, 1, p_.rows, p_.cols);
      return;
    }
    const Operand& q = *t_.q;
    check(q, "out", {2, 2, kQuantizedTypes, true});
    if (options_.dtype && *options_.dtype != q.dtype) {
      refuse_type("out is {}, but dtype is {}; let them agree", to_string(q.dtype), to_string(*options_.dtype));
    }
    if (q.rows() != p_.rows || q.columns() != p_.cols) {
      refuse_value("out is {}; it must be ({}, {}), as x is", shape_text(q), p_.rows, p_.cols);
    }
    p_.q = row_major(q, "out", true);
    arguments_.q = q.data;
  }

  void place_scale() {
    const MatrixShape shape = scale_shape(p_.granularity, p_.rows, p_.cols);
    if (!t_.scale) {
      p_.scale = made_scales(shape, options_.scale_major);
      return;
    }
    const char* name = options_.given_scale ? "scale" : "scale_out";
    check(*t_.scale, name, {0, 2, kFloat32, !options_.given_scale});
    p_.scale = scale_layout(*t_.scale, shape, name);
    arguments_.scale = static_cast<float*>(t_.scale->data);
  }

  void place_zero() {
    if (!t_.zero) return;
    const char* name = options_.given_scale ? "zero" : "zero_out";
    check(*t_.zero, name, {0, 2, kInt32, !options_.given_scale});
    check_line(*t_.zero, name, p_.granularity == Granularity::tensor ? 1 : p_.rows);
    arguments_.zero = static_cast<int32_t*>(t_.zero->data);
  }

  void place_smooth() {
    if (!t_.smooth) return;
    check(*t_.smooth, "smooth", {1, 2, kFloat32});
    check_line(*t_.smooth, "smooth", p_.cols);
    p_.has_smooth = true;
    p_.smooth_alignment = alignment_of(t_.smooth->data);
    arguments_.smooth = static_cast<const float*>(t_.smooth->data);
  }

  void place_norm() {
    if (options_.norm == Norm::none) return;
    RowNorm& norm = p_.norm;
    norm = {.kind = options_.norm, .eps = options_.eps, .zero_centered = options_.zero_centered};
    const auto place = [&](const std::optional<Operand>& vector, const char* name, bool& has, const void*& data) {
      if (!vector) return;
      check(*vector, name, {1, 2, kFloatTypes});
      check_line(*vector, name, p_.cols);
      has = true;
      norm.alignment = std::min(norm.alignment, alignment_of(vector->data));
      data = vector->data;
    };
    place(t_.weight, "norm.weight", norm.has_weight, arguments_.weight);
    place(t_.bias, "norm.bias", norm.has_bias, arguments_.bias);
    if (t_.weight && t_.bias && t_.weight->dtype != t_.bias->dtype) {
      refuse_type("norm.weight is {} and norm.bias is {}; let them agree", to_string(t_.weight->dtype),
                  to_string(t_.bias->dtype));
    }
    if (t_.weight || t_.bias) norm.dtype = t_.weight ? t_.weight->dtype : t_.bias->dtype;
  }

  /// Matrices of x's shape beside x and q.
  void place_residual() {
    const auto place = [&](const Operand& matrix, const char* name, bool written, MatrixLayout& layout, auto*& data) {
      check(matrix, name, {2, 2, kFloatTypes});
      if (matrix.rows() != p_.rows || matrix.columns() != p_.cols) {
        refuse_value("{} is {}; it must be ({}, {}), as x is", name, shape_text(matrix), p_.rows, p_.cols);
      }
      layout = row_major(matrix, name, written);
      data = matrix.data;
    };
    if (t_.normed) {
      p_.has_normed = true;
      place(*t_.normed, "normed_out", true, p_.normed_out, arguments_.normed_out);
    }
    if (!t_.residual) {
      if (t_.residual_out) refuse_value("residual_out is given without residual; pass residual, or leave it out");
      return;
    }
    p_.has_residual = true;
    place(*t_.residual, "residual", false, p_.residual, arguments_.residual);
    if (t_.residual_out) {
      place(*t_.residual_out, "residual_out", true, p_.residual_out, arguments_.residual_out);
    } else {
      p_.residual_out = packed_layout(p_.residual.dtype, 1, p_.rows, p_.cols);
    }
  }

  void place_groups() {
    if (!t_.offs) return;
    const Operand& offs = *t_.offs;
    check_rank(offs, "offs", 1, 1);
    check_integers(offs, "offs", t_.x->device, "x");
    p_.groups = packed_count(offs, "offs");
    if (p_.groups < 1 || p_.groups > kMostGroups) {
      refuse_value("offs is {}; it must have a value for each of 1 to {} groups", shape_text(offs), kMostGroups);
    }
    p_.wide_offsets = offs.int64;
    arguments_.offsets = offs.data;
  }

  void place_transpose() {
    p_.has_transpose = true;
    p_.q_t = packed_layout(p_.q.dtype, 1, p_.cols, extent_t(p_));
    p_.scale_t = made_scales(scale_shape(p_.granularity, p_.cols, extent_t(p_)),
                             p_.groups > 0 ? Major::mn : options_.scale_major);
  }

 private:
  void check(const Operand& operand, const char* name, const Form& form) const {
    check_form(operand, name, form, t_.x->device, "x");
  }

  MatrixLayout made_scales(const MatrixShape& shape, Major major) {
    const bool by_row = major == Major::k;
    return {.dtype = DType::f32,
            .stride_row = by_row ? shape.cols : 1,
            .stride_col = by_row ? 1 : shape.rows,
            .alignment = sizeof(float)};
  }

  const QuantizeTensors& t_;
  const QuantizeOptions& options_;
  QuantizeProblem& p_;
  QuantizeArguments& arguments_;
};

}  // namespace

QuantizeCall make_call(const QuantizeTensors& tensors, const QuantizeOptions& options) {
  QuantizeCall call;
  Builder builder(tensors, options, call);
  builder.place_x();
  builder.place_q();
  builder.place_scale();
  builder.place_zero();
  builder.place_smooth();
  builder.place_norm();
  builder.place_residual();
  builder.place_groups();
  if (options.transpose) builder.place_transpose();
  return call;
}

}  // namespace cleave
