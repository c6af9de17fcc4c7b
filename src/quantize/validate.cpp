// The rules of a QuantizeProblem. Each broken one is reported with the argument, the value seen and
// the remedy.

#include <fmt/format.h>

#include "cleave/core/math.h"
#include "cleave/names.h"
#include "problem/overlap.h"
#include "problem/row_operands.h"
#include "quantize/problem.h"

namespace cleave {
namespace {

/// The shortest piece of a row that a kernel takes as a group, where a row is longer than that.
constexpr int64_t kShortGroup = kScaleBlock;

void check_types(const QuantizeProblem& p, Messages& out) {
  if (p.x.dtype != DType::f16 && p.x.dtype != DType::bf16 && p.x.dtype != DType::f32) {
    out.push_back(fmt::format("x is {}; it must be float16, bfloat16 or float32, convert it",
                              to_string(p.x.dtype)));
  }
  if (p.q.dtype != DType::i8 && !is_fp8(p.q.dtype)) {
    out.push_back(fmt::format("q is {}; it must be int8, float8_e4m3fn or float8_e5m2",
                              to_string(p.q.dtype)));
  }
  const auto check_scale = [&](const char* argument, DType type) {
    if (type == DType::f32) return;
    out.push_back(
        fmt::format("{} is {}; scales are float32, convert it", argument, to_string(type)));
  };
  check_scale("scale", p.scale.dtype);
  if (!p.has_transpose) return;
  check_scale("scale_t", p.scale_t.dtype);
  if (p.q_t.dtype != p.q.dtype) {
    out.push_back(fmt::format("q_t is {} and q is {}; they must be equal", to_string(p.q_t.dtype),
                              to_string(p.q.dtype)));
  }
}

void check_scales(const char* argument, const Placement& scales, bool written, Messages& out) {
  const MatrixLayout& layout = scales.layout;
  check_alignment(argument, layout, out);
  if (scales.empty()) return;
  if (layout.stride_row < 0 || layout.stride_col < 0 || !addressable(scales)) {
    out.push_back(
        fmt::format("{}.stride_row is {} and {}.stride_col is {}; strides must not be "
                    "negative, nor span 2^63 bytes. Pass a contiguous copy of {}",
                    argument, layout.stride_row, argument, layout.stride_col, argument));
  } else if (written && overlaps_itself(scales)) {
    out.push_back(
        fmt::format("{0} overlaps itself: with strides {1} and {2} (row, column), elements of "
                    "[{3}, {4}] share addresses. Pass a contiguous {0}",
                    argument, layout.stride_row, layout.stride_col, scales.rows, scales.columns));
  }
}

void check_count(const QuantizeProblem& p, Messages& out) {
  const double groups = double(p.rows) * double(ceil_div(p.cols, kShortGroup));
  if (groups <= double(kMaxSize)) return;
  out.push_back(fmt::format(
      "rows and cols are {} and {}; that is more than 2^31 groups of {}. Split x by rows", p.rows,
      p.cols, kShortGroup));
}

void check_options(const QuantizeProblem& p, Messages& out) {
  const bool blocks =
      p.granularity == Granularity::block_1x128 || p.granularity == Granularity::block_128x128;
  if (!p.symmetric && p.q.dtype != DType::i8) {
    out.push_back(fmt::format("symmetric is false, but q is {}; only int8 has zero points",
                              to_string(p.q.dtype)));
  }
  if (!p.symmetric && blocks) {
    out.push_back(
        fmt::format("symmetric is false, but granularity is {}; zero points are per row "
                    "or per tensor",
                    to_string(p.granularity)));
  }
  if (p.has_transpose && !blocks) {
    out.push_back(
        fmt::format("has_transpose (transpose) is true, but granularity is {}; the transpose is "
                    "served for block_1x128 and block_128x128",
                    to_string(p.granularity)));
  }
  if (p.has_transpose && p.given_scale) {
    out.push_back(
        "has_transpose (transpose) and given_scale (scale) are both set; the scales of a transpose "
        "are "
        "always found: leave one out");
  }
  if (p.groups < 0 || p.groups > kMostGroups) {
    out.push_back(fmt::format("groups is {}; it must be from 0 to {}", p.groups, kMostGroups));
  } else if (p.groups > 0 && (!p.has_transpose || p.granularity != Granularity::block_1x128)) {
    out.push_back(
        fmt::format("groups is {}, but granularity is {} and has_transpose {}; groups are for "
                    "transposes of block_1x128",
                    p.groups, to_string(p.granularity), p.has_transpose));
  } else if (p.groups > 0 && p.rows <= kMaxSize && padded_extent(p.rows, p.groups + 1) > kMaxSize) {
    out.push_back(
        fmt::format("rows and groups are {} and {}; that is 2^31 padded columns or more. Split x",
                    p.rows, p.groups));
  }
  if (p.has_smooth) check_alignment("smooth", smooth_of(p).layout, out);
}

}  // namespace

bool types_are_served(const QuantizeProblem& p) {
  Messages broken;
  check_types(p, broken);
  return broken.empty();
}

std::vector<std::string> validate(const QuantizeProblem& p) {
  Messages out;
  const bool rows = check_size("rows", p.rows, out), cols = check_size("cols", p.cols, out);
  if (rows && cols) {
    check_rows("x", x_of(p), false, out);
    check_rows("q", q_of(p), true, out);
    check_rows("q_t", q_t_of(p), true, out);
    check_scales("scale", scale_of(p), !p.given_scale, out);
    check_scales("scale_t", scale_t_of(p), true, out);
    check_count(p, out);
  }
  check_types(p, out);
  check_options(p, out);
  check_device(p.device, out);
  return out;
}

}  // namespace cleave
