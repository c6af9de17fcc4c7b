#include "quantize/problem.h"

#include <limits>

#include "base/contiguous.h"
#include "cleave/core/math.h"
#include "cleave/core/saturate.h"
#include "cleave/names.h"
#include "problem/arguments.h"
#include "problem/overlap.h"

namespace cleave {
int64_t padded_extent(int64_t extent, int64_t groups) {
  constexpr int64_t kBlock = kScaleBlock;
  const int64_t padding = saturating_product(kBlock - 1, min_of(extent, groups));
  return saturating_sum(extent, padding) / kBlock * kBlock;
}

int64_t extent_t(const QuantizeProblem& p) {
  return p.groups == 0 ? p.rows : padded_extent(p.rows, p.groups);
}

MatrixShape scale_shape(Granularity granularity, int64_t rows, int64_t cols) {
  constexpr int64_t kBlock = kScaleBlock;
  switch (granularity) {
    case Granularity::tensor:
      return {1, 1};
    case Granularity::row:
      return {rows, 1};
    case Granularity::block_1x128:
      return {rows, ceil_div(cols, kBlock)};
    case Granularity::block_128x128:
      break;
  }
  return {ceil_div(rows, kBlock), ceil_div(cols, kBlock)};
}

Placement x_of(const QuantizeProblem& p) {
  return {p.x, p.rows, p.gated ? 2 * p.cols : p.cols, 1};
}
Placement q_of(const QuantizeProblem& p) {
  return {p.q, p.rows, p.cols, 1};
}
Placement q_t_of(const QuantizeProblem& p) {
  return {p.q_t, p.cols, extent_t(p), p.has_transpose ? 1 : 0};
}
Placement residual_of(const QuantizeProblem& p) {
  return {p.residual, p.rows, p.cols, p.has_residual ? 1 : 0};
}
Placement residual_out_of(const QuantizeProblem& p) {
  return {p.residual_out, p.rows, p.cols, p.has_residual ? 1 : 0};
}
Placement normed_out_of(const QuantizeProblem& p) {
  return {p.normed_out, p.rows, p.cols, p.has_normed ? 1 : 0};
}

// The rules. Each broken one is reported with the argument, the value seen and the remedy.

void check_types(const QuantizeProblem& p, Messages& out) {
  if (!is_wide_float(p.x.dtype)) {
    out.add("x is {}; it must be float16, bfloat16 or float32, convert it", to_string(p.x.dtype));
  }
  if (size_of(p.q.dtype) != 1) {
    out.add("q is {}; it must be int8 or an 8-bit float, as float8_e4m3fn", to_string(p.q.dtype));
  }
  const auto check_scale = [&](const char* argument, DType type) {
    if (type == DType::f32) return;
    out.add("{} is {}; scales are float32, convert it", argument, to_string(type));
  };
  check_scale("scale", p.scale.dtype);
  const auto check_float = [&](const char* argument, DType type) {
    if (is_wide_float(type)) return;
    out.add("{} is {}; it must be float16, bfloat16 or float32, convert it", argument, to_string(type));
  };
  if (p.norm.has_weight || p.norm.has_bias) check_float("norm.dtype (weight, bias)", p.norm.dtype);
  if (p.has_residual) {
    check_float("residual", p.residual.dtype);
    if (p.residual_out.dtype != p.residual.dtype) {
      out.add("residual_out is {} and residual is {}; they must be equal", to_string(p.residual_out.dtype),
              to_string(p.residual.dtype));
    }
  }
  if (p.has_normed && p.normed_out.dtype != p.x.dtype) {
    out.add("normed_out is {} and x is {}; they must be equal", to_string(p.normed_out.dtype), to_string(p.x.dtype));
  }
  if (!p.has_transpose) return;
  check_scale("scale_t", p.scale_t.dtype);
  if (p.q_t.dtype != p.q.dtype) {
    out.add("q_t is {} and q is {}; they must be equal", to_string(p.q_t.dtype), to_string(p.q.dtype));
  }
}

namespace {

Placement scale_of(const QuantizeProblem& p) {
  const MatrixShape shape = scale_shape(p.granularity, p.rows, p.cols);
  return {p.scale, shape.rows, shape.cols, 1};
}
Placement scale_t_of(const QuantizeProblem& p) {
  const MatrixShape shape = scale_shape(p.granularity, p.cols, extent_t(p));
  return {p.scale_t, shape.rows, shape.cols, p.has_transpose ? 1 : 0};
}
/// Weight or bias of the norm.
Placement norm_vector_of(const QuantizeProblem& p, bool given) {
  Placement place = vector_of(p.norm.dtype, given ? p.cols : 0);
  place.layout.alignment = p.norm.alignment;
  return place;
}
Placement smooth_of(const QuantizeProblem& p) {
  Placement place = vector_of(DType::f32, p.has_smooth ? p.cols : 0);
  place.layout.alignment = p.smooth_alignment;
  return place;
}

/// The shortest piece of a row that a kernel takes as a group, where a row is longer than that.
constexpr int64_t kShortGroup = kScaleBlock;

void check_scales(const char* argument, const Placement& scales, bool written, Messages& out) {
  const MatrixLayout& layout = scales.layout;
  check_alignment(argument, layout, out);
  if (scales.empty()) return;
  if (layout.stride_row < 0 || layout.stride_col < 0 || !addressable(scales)) {
    out.add("{0}.stride_row is {1} and {0}.stride_col is {2}; strides must not be negative, nor span 2^63 bytes. {3}",
            argument, layout.stride_row, layout.stride_col, pass_contiguous(argument, written));
  } else if (written && overlaps_itself(scales)) {
    out.add(
        "{0} overlaps itself: with strides {1} and {2} (row, column), elements of [{3}, {4}] share addresses. Pass a "
        "contiguous {0}",
        argument, layout.stride_row, layout.stride_col, scales.rows, scales.columns);
  }
}

void check_count(const QuantizeProblem& p, Messages& out) {
  const double groups = double(p.rows) * double(ceil_div(p.cols, kShortGroup));
  if (groups <= double(kMaxSize)) return;
  out.add("rows and cols are {} and {}; that is more than 2^31 groups of {}. Split x by rows", p.rows, p.cols,
          kShortGroup);
}

void check_options(const QuantizeProblem& p, Messages& out) {
  const bool blocks = p.granularity == Granularity::block_1x128 || p.granularity == Granularity::block_128x128;
  if (!p.symmetric && p.q.dtype != DType::i8) {
    out.add("symmetric is false, but q is {}; only int8 has zero points", to_string(p.q.dtype));
  }
  if (!p.symmetric && blocks) {
    out.add("symmetric is false, but granularity is {}; zero points are per row or per tensor",
            to_string(p.granularity));
  }
  if (p.has_transpose && !blocks) {
    out.add(
        "has_transpose (transpose) is true, but granularity is {}; the transpose is served for block_1x128 and "
        "block_128x128",
        to_string(p.granularity));
  }
  if (p.has_transpose && p.given_scale) {
    out.add(
        "has_transpose (transpose) and given_scale (scale) are both set; the scales of a transpose are always found: "
        "leave one out");
  }
  if (p.groups < 0 || p.groups > kMostGroups) {
    out.add("groups is {}; it must be from 0 to {}", p.groups, kMostGroups);
  } else if (p.groups > 0 && (!p.has_transpose || p.granularity != Granularity::block_1x128)) {
    out.add(
        "groups (offs) is {}, but granularity is {} and has_transpose (transpose) {}; groups are for transposes of "
        "block_1x128",
        p.groups, to_string(p.granularity), p.has_transpose);
  } else if (p.groups > 0 && p.rows <= kMaxSize && padded_extent(p.rows, p.groups + 1) > kMaxSize) {
    out.add("rows and groups are {} and {}; that is 2^31 padded columns or more. Split x", p.rows, p.groups);
  }
  if (p.has_smooth) check_alignment("smooth", smooth_of(p).layout, out);
  if (p.gated && p.granularity != Granularity::block_1x128) {
    out.add("gated is true, but granularity is {}; it is for block_1x128", to_string(p.granularity));
  } else if (p.gated && (p.given_scale || p.has_transpose || p.has_smooth || p.norm.kind != Norm::none)) {
    out.add("gated is true beside given_scale, has_transpose, has_smooth or a norm; leave those out");
  }
  if (p.ue8m0_scale && p.given_scale) {
    out.add(
        "ue8m0_scale (use_ue8m0) and given_scale (scale) are both set; scales that are found are rounded: leave one "
        "out");
  }
  if (p.ue8m0_scale && !p.symmetric) {
    out.add("ue8m0_scale (use_ue8m0) is true, but symmetric is false; UE8M0 has no zero points: leave one out");
  }
}

/// What may go with a norm, and what needs one.
void check_norm(const QuantizeProblem& p, Messages& out) {
  if (p.norm.kind == Norm::none) {
    const auto check = [&](bool given, const char* what, const char* argument) {
      if (given) out.add("has_{0} ({1}) is true, but norm is none; pass norm, or leave {1} out", what, argument);
    };
    check(p.has_residual, "residual", "residual");
    check(p.has_normed, "normed", "normed_out");
    return;
  }
  if (!(p.norm.eps >= 0.0f) || p.norm.eps > std::numeric_limits<float>::max()) {
    out.add("norm.eps is {}; it must be finite and not negative, as 1e-6", p.norm.eps);
  }
  if (p.norm.has_weight || p.norm.has_bias) {
    check_alignment("norm", norm_vector_of(p, true).layout, out);
  }
  if (p.norm.zero_centered && !p.norm.has_weight) {
    out.add(
        "norm.zero_centered is true, but has_weight is false; pass the weight that is kept less 1, or leave "
        "zero_centered out");
  }
}

}  // namespace

std::vector<std::string> validate(const QuantizeProblem& p) {
  Messages out;
  const bool rows = check_size("rows", p.rows, out), cols = check_size("cols", p.cols, out);
  if (rows && cols) {
    check_rows("x", x_of(p), false, out);
    check_rows("q", q_of(p), true, out);
    check_rows("q_t", q_t_of(p), true, out);
    check_rows("residual", residual_of(p), false, out);
    check_rows("residual_out", residual_out_of(p), true, out);
    check_rows("normed_out", normed_out_of(p), true, out);
    check_scales("scale", scale_of(p), !p.given_scale, out);
    check_scales("scale_t", scale_t_of(p), true, out);
    check_count(p, out);
  }
  check_types(p, out);
  check_options(p, out);
  check_norm(p, out);
  check_device(p.device, out);
  return out;
}

void check_arguments(const QuantizeProblem& p, const QuantizeArguments& arguments) {
  const int64_t zeros = p.symmetric ? 0 : p.granularity == Granularity::tensor ? 1 : p.rows;
  const NamedOperand operands[] = {
      {"q", q_of(p), arguments.q, true},
      {"scale", scale_of(p), arguments.scale, !p.given_scale},
      {"zero", integers_of(zeros, false), arguments.zero, !p.given_scale},
      {"q_t", q_t_of(p), arguments.q_t, true},
      {"scale_t", scale_t_of(p), arguments.scale_t, true},
      {"padded_ends", integers_of(p.groups, false), arguments.padded_ends, true},
      {"residual_out", residual_out_of(p), arguments.residual_out, true, false, true},
      {"normed_out", normed_out_of(p), arguments.normed_out, true, false, true},
      {"offsets", integers_of(p.groups, p.wide_offsets), arguments.offsets, false, p.wide_offsets},
      {.name = "x", .place = x_of(p), .data = arguments.x, .elementwise = true},
      {.name = "residual", .place = residual_of(p), .data = arguments.residual, .elementwise = true},
      {"weight", norm_vector_of(p, p.norm.has_weight), arguments.weight, false},
      {"bias", norm_vector_of(p, p.norm.has_bias), arguments.bias, false},
      {"smooth", smooth_of(p), arguments.smooth, false},
  };
  check_operands(operands);
}

}  // namespace cleave
