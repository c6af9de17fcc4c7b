// The rules of grouped products.

#include <algorithm>
#include <utility>

#include "cleave/names.h"
#include "problem/rules.h"

namespace cleave {
namespace {

void check_count(const GemmProblem& p, Messages& out) {
  if (p.batch >= 1 && p.batch <= kMostGroups) return;
  out.add("batch, the number of groups, is {}; it must be from 1 to {}. Make more groups several products", p.batch,
          kMostGroups);
}

void check_spacing(const GroupLayout& groups, Messages& out) {
  if (groups.spacing >= 1 && groups.spacing <= kMaxSize) return;
  out.add("groups.spacing (alignment) is {}; it must be from 1 to 2^31 - 1", groups.spacing);
}

/// What all groups share has no batch.
void check_shared(const GemmProblem& p, Messages& out) {
  const std::pair<const char*, Placement> parts[] = {{"a", a_of(p)},
                                                     {"b", b_of(p)},
                                                     {"c", c_of(p)},
                                                     {"d", d_of(p)},
                                                     {"scale_a", scale_a_of(p)},
                                                     {"scale_b", scale_b_of(p)}};
  for (const auto& [argument, place] : parts) {
    const int64_t stride = place.layout.stride_batch;
    if (place.batch != 1 || p.batch == 1 || stride == 0) continue;
    out.add("{0}.stride_batch is {1}, but {2} is grouped and all groups share one {0}; pass 0", argument, stride,
            to_string(p.groups.dimension));
  }
}

void check_rest(const GroupLayout& groups, Messages& out) {
  if (!groups.zero_rest || groups.dimension != Grouping::k) return;
  out.add("groups.zero_rest is set, but k is grouped: every element of d belongs to a group. Leave it false");
}

void check_expected(const GemmProblem& p, Messages& out) {
  const GroupLayout& groups = p.groups;
  if (groups.expected_m == 0) return;
  const bool fits = groups.expected_m > 0 && groups.expected_m <= p.m / std::max<int64_t>(p.batch, 1);
  if (fits && groups.dimension == Grouping::m) return;
  out.add(
      "groups.expected_m is {}, and {} of {} is grouped in {}; it is of groups of m, from 1 to m / batch, or 0 where "
      "nothing is expected",
      groups.expected_m, to_string(groups.dimension), p.m, p.batch);
}

void check_bias(const GemmProblem& p, Messages& out) {
  const bool along = (p.bias == Bias::column && p.groups.dimension == Grouping::m) ||
                     (p.bias == Bias::row && p.groups.dimension == Grouping::n);
  if (!along || p.bias_stride_batch == 0) return;
  out.add(
      "bias_stride_batch is {}, but a {} of bias runs along {}, which is grouped: it has its groups' values already. "
      "Pass 0",
      p.bias_stride_batch, to_string(p.bias), to_string(p.groups.dimension));
}

/// A block may not cover two groups.
void check_blocks(const GemmProblem& p, Messages& out) {
  const auto check = [&](const char* argument, const ScaleLayout& scales, Grouping own) {
    if (scales.kind != Scaling::block || scales.rows == 1 || p.groups.dimension != own) return;
    out.add("{}.rows is {}, but {} is grouped and groups may end anywhere; scale blocks of 1 x {}", argument,
            scales.rows, to_string(own), kScaleBlock);
  };
  check("scale_a", p.scale_a, Grouping::m);
  check("scale_b", p.scale_b, Grouping::n);

  const GroupLayout& groups = p.groups;
  const bool aligned = (groups.bounds == GroupBounds::aligned_ends || groups.bounds == GroupBounds::counts) &&
                       groups.spacing % kScaleBlock == 0;
  if (groups.dimension != Grouping::k || p.scale_a.kind != Scaling::block || aligned) return;
  out.add(
      "scale_a is of blocks and k is grouped by {} with spacing {}; groups of K must begin where a block does. Pass "
      "aligned_ends or counts with a spacing (alignment) that is a multiple of {}",
      to_string(groups.bounds), groups.spacing, kScaleBlock);
}

void check_apart(const GemmProblem& p, Messages& out) {
  const GroupLayout& groups = p.groups;
  if (!groups.apart) return;
  if (groups.dimension != Grouping::k || groups.bounds != GroupBounds::aligned_ends) {
    out.add(
        "groups.apart is set, but {} is grouped by {}; only groups of k by aligned_ends have matrices by themselves. "
        "Leave it false",
        to_string(groups.dimension), to_string(groups.bounds));
    return;
  }
  const int64_t vector = 16 / size_of(p.a.dtype);
  if (groups.spacing % vector != 0) {
    out.add(
        "groups.apart is set, but groups.spacing (alignment) is {}; rows of a group's matrices must begin at multiples "
        "of 16 bytes. Pass a multiple of {}",
        groups.spacing, vector);
  }
  if (groups.spacing >= 1 && p.k % groups.spacing != 0) {
    out.add("k is {}, but groups lie apart with room for multiples of {}; pass k with all of the last group's room",
            p.k, groups.spacing);
  }
  const auto check = [&](const char* argument, int64_t rows, int64_t stride, int64_t stride_k) {
    if ((rows <= 1 || stride == p.k) && (p.k <= 1 || stride_k == 1)) return;
    out.add(
        "groups.apart is set, but {0}'s strides are {1} and, along k, {2}; describe all groups' matrices as a packed "
        "one, [{3}, {4}], with K contiguous",
        argument, stride, stride_k, rows, p.k);
  };
  check("a", p.m, p.a.stride_row, p.a.stride_col);
  check("b", p.n, p.b.stride_col, p.b.stride_row);
}

void check_no_zero_points(const GemmProblem& p, Messages& out) {
  if (!p.has_zero) return;
  out.add("has_zero (azp_adj) is set for a grouped product, which serves no zero points; quantise symmetrically");
}

/// The kernel's threads copy whole lines of K.
void check_gather(const GemmProblem& p, Messages& out) {
  const GatherLayout& gather = p.gather;
  if (!gather.given) return;
  if (p.groups.dimension != Grouping::m) {
    out.add("gather is given, but {} is grouped; a list names rows of a where those are grouped. Leave it out",
            to_string(p.groups.dimension));
    return;
  }
  if (gather.divisor < 1 || gather.rows < 0 || gather.rows > kMaxSize / gather.divisor) {
    out.add("gather.rows and gather.divisor are {} and {}; that is no number of rows below 2^31, each so many times",
            gather.rows, gather.divisor);
  }
  if (gather.rows == 0 && p.m > 0) out.add("gather has {} rows of an a that has none; pass a's rows", p.m);
  if (p.groups.bounds == GroupBounds::counts)
    out.add("gather is given, but groups are counts of rows that a has room for; pass offs, indptr or starts");
  if (p.a.stride_col != 1 && p.k > 1) {
    out.add("gather is given, but a.stride_col is {}; rows that a list names must be contiguous: pass a copy",
            p.a.stride_col);
  }
  if (p.weights_b.format != WeightFormat::none || p.weights_a.format != WeightFormat::none)
    out.add("gather is given, but b is a packed weight, whose products have none; gather the rows before");
}

}  // namespace

void check_groups(const GemmProblem& p, Messages& out) {
  if (p.groups.dimension == Grouping::none) {
    if (p.gather.given) out.add("gather is given, but no dimension is grouped; index a before, or describe groups");
    if (p.groups == GroupLayout{}) return;
    out.add("groups describes groups of no dimension; set groups.dimension, or leave all out");
    return;
  }
  if (p.groups.dimension == Grouping::classes) {
    out.add("groups.dimension is classes, which the planner makes of a convolution; set conv, and leave groups out");
    return;
  }
  check_count(p, out);
  check_spacing(p.groups, out);
  check_shared(p, out);
  check_rest(p.groups, out);
  check_expected(p, out);
  check_bias(p, out);
  check_blocks(p, out);
  check_apart(p, out);
  check_gather(p, out);
  check_no_zero_points(p, out);
}

}  // namespace cleave
