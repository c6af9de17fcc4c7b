#include <fmt/ranges.h>

#include "cleave/names.h"
#include "problem/placement.h"
#include "problem/rules.h"

namespace cleave {
namespace {

void check_strides(const char* argument, const Placement& scales, Messages& out) {
  if (scales.empty()) return;
  const auto check = [&](const char* which, int64_t size, int64_t stride) {
    return size == 1 || check_stride(argument, which, stride, true, out);
  };
  const bool rows = check("stride_row", scales.rows, scales.layout.stride_row);
  const bool columns = check("stride_k", scales.columns, scales.layout.stride_col);
  const bool entries = check("stride_batch", scales.batch, scales.layout.stride_batch);
  if (rows && columns && entries) check_addressable(argument, scales, "row, k, batch", out);
}

/// `place` is called only for scales whose blocks have a size.
void check_scales(const char* argument, const ScaleLayout& scales, const char* operand, DType type,
                  Placement (*place)(const GemmProblem&), const GemmProblem& p, Messages& out) {
  if (scales.kind == Scaling::none) return;
  if (size_of(type) != 1) {
    out.add("{} is given, but {} is {}; scales are for 8-bit operands. Leave it out, or multiply alpha by it", argument,
            operand, to_string(type));
  }
  if (scales.kind == Scaling::block && scales.rows != 1 && scales.rows != kScaleBlock) {
    out.add("{}.rows is {}; a block is 1 or {} rows (of B, columns) by {} of K. Scale one of these", argument,
            scales.rows, kScaleBlock, kScaleBlock);
    return;
  }
  check_strides(argument, place(p), out);
}

void check_zero(const GemmProblem& p, Messages& out) {
  if (!p.has_zero) return;
  if (p.a.dtype != DType::i8) {
    out.add("has_zero (azp_adj) is set, but a is {}; only int8 operands have zero points. Leave them out",
            to_string(p.a.dtype));
  } else if (p.scale_a.kind == Scaling::block) {
    out.add(
        "has_zero (azp_adj) is set, but scale_a is of blocks; zero points are taken off sums over all of K. Scale rows "
        "and columns instead");
  }
}

/// An int32 D takes integers, so nothing may be left to do that makes others of them.
void check_integer_output(const GemmProblem& p, Messages& out) {
  if (p.d.dtype != DType::i32) return;
  std::vector<const char*> given;
  if (p.scale_a.kind != Scaling::none) given.push_back("scale_a");
  if (p.scale_b.kind != Scaling::none) given.push_back("scale_b");
  if (p.bias != Bias::none) given.push_back("bias");
  if (p.activation != Activation::none) given.push_back("activation");
  if (p.has_amax) given.push_back("amax");
  if (given.empty()) return;
  out.add(
      "d is int32, which takes the integer sums, and a c of int32, but there is {}; leave that out, or pass d of a "
      "float type",
      fmt::join(given, ", "));
}

}  // namespace

void check_scaling(const GemmProblem& p, Messages& out) {
  if (p.scale_a.kind != p.scale_b.kind) {
    out.add(
        "scale_a.kind is {} and scale_b.kind is {}; they must be equal. Scale rows and columns, or blocks of both; a "
        "single 1 is a vector, too",
        to_string(p.scale_a.kind), to_string(p.scale_b.kind));
  }
  check_scales("scale_a", p.scale_a, "a", p.a.dtype, scale_a_of, p, out);
  check_scales("scale_b", p.scale_b, "b", p.b.dtype, scale_b_of, p, out);
  check_zero(p, out);
  check_integer_output(p, out);
  if (p.has_scale_d && size_of(p.d.dtype) != 1) {
    out.add(
        "scale_d is given, but d is {}; only an 8-bit d is divided by a scale. Leave it out, or pass d of int8 or of "
        "an 8-bit float type",
        to_string(p.d.dtype));
  }
  if (p.fast_accumulation && !is_fp8(p.a.dtype)) {
    out.add(
        "fast_accumulation (use_fast_accum) is set, but a is {}; 8-bit floats alone have that choice. Leave it false",
        to_string(p.a.dtype));
  }
}

}  // namespace cleave
