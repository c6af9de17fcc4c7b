#include "operands/gemm_operands.h"

#include <limits>

#include "cleave/names.h"
#include "operands/refuse.h"
#include "operands/scales.h"

namespace cleave {
namespace {

/// Fills a GemmCall, tensor by tensor.
class Builder {
 public:
  Builder(const GemmTensors& tensors, GemmCall& call)
      : t_(tensors), call_(call), p_(call.problem), arguments_(call.arguments) {}

  void place_matrices();
  void place_c();
  void place_bias();
  void place_scale_factors();
  void place_zero_points();
  void place_d(std::optional<DType> d_type);
  void place_scale_d();
  void place_amax();

 private:
  void check(const Operand& operand, const char* name, const Form& form) const {
    check_form(operand, name, form, t_.a->device, "a");
  }
  const int32_t* line(const Operand& zero_points, const char* name, int64_t length) const;
  void* one_value(const Operand& operand, const char* name) const;
  std::string shape_of_d() const;

  const GemmTensors& t_;
  GemmCall& call_;
  GemmProblem& p_;
  GemmArguments& arguments_;
};

std::string Builder::shape_of_d() const {
  return call_.batched ? fmt::format("({}, {}, {})", p_.batch, p_.m, p_.n)
                       : fmt::format("({}, {})", p_.m, p_.n);
}

void Builder::place_matrices() {
  constexpr Form kForm{2, 3, kMultipliedTypes};
  const Operand &a = *t_.a, &b = *t_.b;
  check(a, "a", kForm);
  check(b, "b", kForm);
  if (a.dtype != b.dtype && !(is_fp8(a.dtype) && is_fp8(b.dtype))) {
    refuse_type("a is {} and b is {}; convert one of them", to_string(a.dtype), to_string(b.dtype));
  }
  if (a.columns() != b.rows()) {
    refuse_value("a is {} and b is {}: a's columns ({}) must match b's rows ({})", shape_text(a),
                 shape_text(b), a.columns(), b.rows());
  }
  if (a.batch() != b.batch() && a.batch() != 1 && b.batch() != 1) {
    refuse_value("a is {} and b is {}: their batches ({} and {}) must be equal, or one of them 1",
                 shape_text(a), shape_text(b), a.batch(), b.batch());
  }
  call_.batched = a.ndim == 3 || b.ndim == 3;
  p_.m = a.rows();
  p_.n = b.columns();
  p_.k = a.columns();
  p_.batch = a.batch() == 1 ? b.batch() : a.batch();
  p_.a = layout_of(a, "a");
  p_.b = layout_of(b, "b");
  p_.device = a.device;
  arguments_.a = a.data;
  arguments_.b = b.data;
}

void Builder::place_c() {
  const Operand& c = *t_.c;
  check(c, "c", {2, 3, kFloatTypes});
  if (c.rows() != p_.m || c.columns() != p_.n || (c.batch() != p_.batch && c.batch() != 1)) {
    refuse_value("c is {}; it must be {}", shape_text(c), shape_of_d());
  }
  p_.has_c = true;
  p_.c = layout_of(c, "c");
  arguments_.c = c.data;
}

void Builder::place_bias() {
  const Operand& bias = *t_.bias;
  check(bias, "bias", {1, 2, kFloatTypes});
  const bool row =
      bias.ndim == 1 ? bias.shape[0] == p_.n : bias.rows() == 1 && bias.columns() == p_.n;
  const bool column = bias.ndim == 2 && bias.rows() == p_.m && bias.columns() == 1;
  if (!row && !column) {
    refuse_value(
        "bias is {}; it must be ({},) or (1, {}), one value per column of D, or ({}, 1), one per "
        "row",
        shape_text(bias), p_.n, p_.n, p_.m);
  }
  p_.bias = row ? Bias::row : Bias::column;
  p_.bias_dtype = bias.dtype;
  const int along = row ? bias.ndim - 1 : 0;
  if (bias.shape[along] > 1 && bias.stride[along] != 1) {
    refuse_value("bias has a stride of {}; it must be contiguous, pass a copy", bias.stride[along]);
  }
  arguments_.bias = bias.data;
}

void Builder::place_scale_factors() {
  if (!t_.scale_a || !t_.scale_b) {
    refuse_value("{} is missing; pass both scales (an array of one 1.0 scales nothing), or neither",
                 t_.scale_a ? "scale_b" : "scale_a");
  }
  constexpr Form kForm{0, 3, kFloat32};
  check(*t_.scale_a, "scale_a", kForm);
  check(*t_.scale_b, "scale_b", kForm);
  place_scales(*t_.scale_a, *t_.scale_b, p_);
  arguments_.scale_a = static_cast<const float*>(t_.scale_a->data);
  arguments_.scale_b = static_cast<const float*>(t_.scale_b->data);
}

const int32_t* Builder::line(const Operand& zero_points, const char* name, int64_t length) const {
  check(zero_points, name, {1, 2, kInt32});
  if (line_length(zero_points) != length) {
    refuse_value("{} is {}; it must be ({},), contiguous", name, shape_text(zero_points), length);
  }
  return static_cast<const int32_t*>(zero_points.data);
}

void Builder::place_zero_points() {
  if (!t_.azp_adj) {
    refuse_value("azp is given without azp_adj; pass the sums of b's columns as azp_adj");
  }
  if (t_.azp) arguments_.zero_a = line(*t_.azp, "azp", p_.m);
  arguments_.zero_b = line(*t_.azp_adj, "azp_adj", p_.n);
  p_.has_zero = true;
}

void Builder::place_d(std::optional<DType> d_type) {
  if (!t_.out) {
    p_.d = packed_layout(d_type.value_or(default_output(p_)), p_.batch, p_.m, p_.n);
    return;
  }
  const Operand& out = *t_.out;
  check(out, "out", {2, 3, kAnyType});
  if (d_type && *d_type != out.dtype) {
    refuse_type("out is {}, but out_dtype is {}; leave one of them away", to_string(out.dtype),
                to_string(*d_type));
  }
  if (call_.batched != (out.ndim == 3) || out.batch() != p_.batch || out.rows() != p_.m ||
      out.columns() != p_.n) {
    refuse_value("out is {}; it must be {}", shape_text(out), shape_of_d());
  }
  p_.d = layout_of(out, "out");
  arguments_.d = out.data;
}

void* Builder::one_value(const Operand& operand, const char* name) const {
  check(operand, name, {0, 3, kFloat32});
  if (line_length(operand) != 1) {
    refuse_value("{} is {}; it must hold one value", name, shape_text(operand));
  }
  return operand.data;
}

void Builder::place_scale_d() {
  p_.has_scale_d = true;
  arguments_.scale_d = static_cast<const float*>(one_value(*t_.scale_d, "scale_d"));
}

void Builder::place_amax() {
  p_.has_amax = true;
  arguments_.amax = static_cast<float*>(one_value(*t_.amax, "amax"));
}

}  // namespace

GemmCall make_call(const GemmTensors& tensors, std::optional<DType> d_type) {
  GemmCall call;
  Builder builder(tensors, call);
  builder.place_matrices();
  if (tensors.c) builder.place_c();
  if (tensors.bias) builder.place_bias();
  if (tensors.scale_a || tensors.scale_b) builder.place_scale_factors();
  if (tensors.azp || tensors.azp_adj) builder.place_zero_points();
  builder.place_d(d_type);
  if (tensors.scale_d) builder.place_scale_d();
  if (tensors.amax) builder.place_amax();
  return call;
}

DType default_output(const GemmProblem& p) {
  if (size_of(p.a.dtype) > 1) return p.a.dtype;
  const bool exact = p.a.dtype == DType::i8 && p.scale_a.kind == Scaling::none;
  return exact ? DType::i32 : DType::bf16;
}

void set_scalars(float alpha, std::optional<float> beta, GemmCall& call) {
  const bool has_c = call.problem.has_c;
  if (!has_c && beta.value_or(0.0f) != 0.0f) {
    refuse_value("beta is {} but there is no c; pass c (c=out adds to out in place)", *beta);
  }
  call.arguments.alpha = alpha;
  call.arguments.beta = beta.value_or(has_c ? 1.0f : 0.0f);
}

int32_t slice_count(std::optional<int64_t> slices) {
  if (!slices) return 0;
  if (*slices < 1 || *slices > std::numeric_limits<int32_t>::max()) {
    refuse_value("split_k_slices is {}; it must be from 1 to K, or None to let the planner choose",
                 *slices);
  }
  return int32_t(*slices);
}

}  // namespace cleave
