// The rules of products with a packed weight.

#include "cleave/memory/weight_layout.h"
#include "cleave/names.h"
#include "problem/problem.h"
#include "problem/rules.h"

namespace cleave {
namespace {

void check_group(const GemmProblem& p, const WeightLayout& weights, Messages& out) {
  const int64_t group = weights.group;
  if (weights.format != WeightFormat::int4) {
    const std::string_view format = to_string(weights.format);
    const int64_t own = usual_group(weights.format);
    if (weights.has_zero) out.add("zeros is given, but format is {}, which has none; leave it out", format);
    if (group != own) return out.add("group_size is {}, but format is {}; its groups are of {}", group, format, own);
  } else if (group == p.k && group > 0) {  // whole rows
    return;
  } else if (group != 32 && group != 64 && (group <= 0 || group % 128 != 0)) {
    return out.add("group_size is {}; it must be 32, 64, a multiple of 128, or k ({}), for one scale per row", group,
                   p.k);
  }
  if (p.k % group != 0) {
    out.add("group_size is {}, which does not divide k ({}); quantise in groups that do, or whole rows", group, p.k);
  }
}

/// What codes are made elements of, and the scales of the other operand's rows, which those of 8 bits may have.
void check_activations(const GemmProblem& p, Messages& out) {
  const DType type = p.a.dtype;
  const bool bytes = type == DType::e4m3 || type == DType::i8;
  if (!bytes && size_of(type) != 2) {
    out.add("a is {}, but b is a packed weight; pass a of bfloat16, float16, float8_e4m3fn or int8", to_string(type));
  }
  if (p.scale_a.kind == Scaling::none) return;
  if (!bytes) {
    out.add("scale_a is given, but a is {}; scales are for rows of 8 bits. Leave it out, or multiply alpha by it",
            to_string(type));
  } else if (p.scale_a.kind != Scaling::vector) {
    out.add("scale_a is of blocks, but b is a packed weight, beside which a row of a has one scale; pass those");
  }
}

/// What no kernel, or no rule of the layout, has beside packed weights.
void check_company(const GemmProblem& p, Messages& out) {
  if (p.d.dtype == DType::i32)
    out.add("d is int32, but b is a packed weight, which has scales; pass d of a float type");
  if (p.has_zero) out.add("has_zero (azp_adj) is set, but b is a packed weight; leave it out");
  if (p.conv.kind != Conv::none) {
    out.add("b is a packed weight, but this is a convolution; unpack the weight");
  }
  if (p.groups.dimension == Grouping::n || p.groups.dimension == Grouping::k) {
    out.add("b is a packed weight, but {} is grouped; only groups of m, a's rows, have weights each",
            to_string(p.groups.dimension));
  }
  if (p.epilogue.gates == Gates::interleaved) {
    out.add("{}, but b is a packed weight, whose rows are sorted, and packed for gates that come first; take {}",
            gate_of(p), activation_of(p) == Activation::none ? "acc.gate and acc.up" : "swiglu");
  }
  if (is_gated(p) && p.n % kGateRows != 0) {
    out.add("n is {}, but b is a packed weight of gates and ups, {} of each in turn; pad both with rows of zeros", p.n,
            kGateRows);
  }
  if (finds_scales(p) && (p.batch > 1 || p.groups.dimension != Grouping::none)) {
    out.add("out_scale is given, but b is packed weights of several products; quantise d in a step of its own");
  }
  if (p.k == 0) out.add("k is 0, but b is a packed weight, which has one column at least");
  if (p.kernel == KernelFamily::portable || p.kernel == KernelFamily::direct) {
    out.add("kernel is {}, but b is a packed weight, which sm90 and streamed serve; leave it out", to_string(p.kernel));
  }
}

}  // namespace

void check_weights(const GemmProblem& p, Messages& out) {
  if (p.weights_a.format != WeightFormat::none) {
    out.add("weights_a is {}; only b can be a packed weight. Exchange a and b", to_string(p.weights_a.format));
  }
  const WeightLayout& weights = p.weights_b;
  if (weights.format == WeightFormat::none) return;
  check_activations(p, out);
  check_company(p, out);
  check_group(p, weights, out);
  const int64_t column = weight_extent(p.k);
  if (p.k > 0 && (p.b.stride_row != 1 || p.b.stride_col != column)) {
    out.add("b has strides {} and {}, but is a packed weight; they must be 1 and {}, k in whole blocks of {}",
            p.b.stride_row, p.b.stride_col, column, kWeightBlock);
  }
  const int64_t entry = weight_extent(columns_of_b(p)) * column;
  if (entries_of_b(p) > 1 && p.b.stride_batch != 0 && p.b.stride_batch != entry) {
    out.add("b.stride_batch is {}, but b is packed weights; it must be {}, whole blocks behind each other, or 0",
            p.b.stride_batch, entry);
  }
  const bool has_global = p.scale_b.kind == Scaling::vector, wants_global = weights.format == WeightFormat::nvfp4;
  if (has_global != wants_global) {
    out.add("global_scale is {}, but format is {}, which has {}; {}", has_global ? "given" : "missing",
            to_string(weights.format), wants_global ? "one" : "none", wants_global ? "pass it" : "leave it out");
  }
  const Placement scales = weight_scale_of(p);
  const bool sound =
      (scales.rows <= 1 || check_stride("scale", "stride_k", scales.layout.stride_row, false, false, out)) &&
      (scales.batch <= 1 || check_stride("scale", "stride_batch", scales.layout.stride_batch, true, false, out));
  if (scales.layout.stride_row > kMaxSize) {
    out.add("scale.stride_k is {}; at most 2^31 - 1 is served. Pass a contiguous copy of scales",
            scales.layout.stride_row);
  }
  if (sound) check_addressable("scale", scales, "group, row, batch", out);
}

}  // namespace cleave
