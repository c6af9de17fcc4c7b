#include <fmt/ranges.h>

#include "cleave/names.h"
#include "problem/overlap.h"
#include "problem/placement.h"
#include "problem/problem.h"
#include "problem/rules.h"

namespace cleave {
namespace {

void check_strides(const char* argument, const Placement& scales, bool written, Messages& out) {
  if (scales.empty()) return;
  const auto check = [&](const char* which, int64_t size, int64_t stride) {
    return size == 1 || check_stride(argument, which, stride, true, written, out);
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
  if (size_of(type) != 1 && p.weights_b.format == WeightFormat::none) {
    out.add("{} is given, but {} is {}; scales are for 8-bit operands. Leave it out, or multiply alpha by it", argument,
            operand, to_string(type));
  }
  if (scales.kind == Scaling::block && scales.rows != 1 && scales.rows != kScaleBlock) {
    out.add("{}.rows is {}; a block is 1 or {} rows (of B, columns) by {} of K. Scale one of these", argument,
            scales.rows, kScaleBlock, kScaleBlock);
    return;
  }
  check_strides(argument, place(p), false, out);
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

/// Each of the scales that are found belongs to one row and 128 columns of a tile.
void check_scale_out(const GemmProblem& p, Messages& out) {
  if (!finds_scales(p)) {
    if (p.ue8m0_scale_out) {
      out.add(
          "ue8m0_scale_out (use_ue8m0) is set, but no scales are found; pass out_scale=\"block_1x128\", or leave it");
    }
    return;
  }
  if (size_of(p.d.dtype) != 1) {
    out.add(
        "out_scale is given, but d is {}; only an 8-bit d has scales. Leave it out, or pass d of int8 or of an 8-bit "
        "float type",
        to_string(p.d.dtype));
  }
  if (p.has_scale_d) {
    out.add(
        "scale_d is given beside out_scale; pass scale_d where the scale is known, out_scale where it is to be "
        "computed");
  }
  if (p.scale_out.rows != 1) {
    out.add("scale_out.rows is {}; scales of d are of 1 row by {} columns", p.scale_out.rows, kScaleBlock);
  }
  if (output_order(p) == Order::column) {
    out.add(
        "d.stride_row is {} and d.stride_col is {}, but out_scale is given, whose scales are those of neighbours in a "
        "row; pass a row-major d",
        p.d.stride_row, p.d.stride_col);
  }
  if (p.groups.dimension == Grouping::n) {
    out.add(
        "out_scale is given, but n is grouped, so that a scale could be two groups'; quantise in a step of its own, or "
        "group m");
  }
  if (p.conv.kind != Conv::none) {
    out.add("out_scale is given, but this is a convolution; quantise its output in a step of its own");
  }
  const Placement scales = scale_out_of(p);
  check_strides("scale_out", scales, true, out);
  if (overlaps_itself(scales)) {
    out.add(
        "scale_out overlaps itself: with strides {}, {} and {} (row, block, batch) scales share addresses. Pass a "
        "contiguous scale_out",
        p.scale_out.stride_row, p.scale_out.stride_k, p.scale_out.stride_batch);
  }
}

/// An int32 D takes integers, so nothing may be left to do that makes others of them.
void check_integer_output(const GemmProblem& p, Messages& out) {
  if (p.d.dtype != DType::i32) return;
  std::vector<const char*> given;
  if (p.scale_a.kind != Scaling::none) given.push_back("scale_a");
  if (p.scale_b.kind != Scaling::none) given.push_back("scale_b");
  if (p.bias != Bias::none) given.push_back("bias");
  if (p.epilogue.function != nullptr) given.push_back(name_of_epilogue(p));
  if (p.has_amax) given.push_back("amax");
  if (given.empty()) return;
  out.add(
      "d is int32, which takes the integer sums, and a c of int32, but there is {}; leave that out, or pass d of a "
      "float type",
      fmt::join(given, ", "));
}

}  // namespace

void check_scaling(const GemmProblem& p, Messages& out) {
  const bool of_weights = p.weights_b.format != WeightFormat::none;  // check_weights says what those may have
  if (!of_weights && p.scale_a.kind != p.scale_b.kind) {
    out.add(
        "scale_a.kind is {} and scale_b.kind is {}; they must be equal. Scale rows and columns, or blocks of both; a "
        "single 1 is a vector, too",
        to_string(p.scale_a.kind), to_string(p.scale_b.kind));
  }
  check_scales("scale_a", p.scale_a, "a", p.a.dtype, scale_a_of, p, out);
  check_scales("scale_b", p.scale_b, "b", p.b.dtype, scale_b_of, p, out);
  check_zero(p, out);
  check_integer_output(p, out);
  check_scale_out(p, out);
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
