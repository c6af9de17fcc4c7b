#include "operands/group_bounds.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/refuse.h"
#include "cleave/core/math.h"
#include "cleave/names.h"
#include "operands/packed.h"

namespace cleave {
namespace {

/// One contiguous line of them. True if they are 64-bit integers.
bool check_integer_line(const Operand& x, const char* name, int device) {
  check_rank(x, name, 1, 1);
  check_integers(x, name, device, "a");
  if (x.shape[0] > 1 && x.stride[0] != 1) {
    refuse_value("{} has a stride of {}; it must be contiguous, pass a copy", name, x.stride[0]);
  }
  return x.int64;
}

void check_sizes_fit(const Operand& starts, const Operand& sizes) {
  if (starts.int64 != sizes.int64) {
    refuse_type("starts is {} and sizes is {}; convert one of them", starts.type_name(), sizes.type_name());
  }
  if (starts.shape[0] != sizes.shape[0]) {
    refuse_value("starts is {} and sizes is {}; each must have one value per group", shape_text(starts),
                 shape_text(sizes));
  }
}

int64_t read_alignment(std::optional<int64_t> alignment, GroupBounds bounds) {
  if (!alignment) return 1;
  if (bounds != GroupBounds::ends && bounds != GroupBounds::counts) {
    refuse_value("alignment is {}, but {} says where each group begins; leave it out", *alignment, to_string(bounds));
  }
  if (*alignment < 1) {
    refuse_value("alignment is {}; groups begin at multiples of it: pass 1 or more", *alignment);
  }
  return *alignment;
}

}  // namespace

std::optional<DescribedGroups> read_bounds(const GemmTensors& t, std::optional<int64_t> alignment, int device) {
  if (t.starts.has_value() != t.sizes.has_value()) {
    refuse_value("{} is missing; starts and sizes go together", t.starts ? "sizes" : "starts");
  }
  const int given = t.offs.has_value() + t.indptr.has_value() + t.starts.has_value() + t.counts.has_value();
  if (given == 0) return std::nullopt;
  if (given > 1) {
    refuse_value("the groups are described {} times; pass one of offs, indptr, starts with sizes, and counts", given);
  }
  DescribedGroups g;
  const char* by = "";
  const auto describe = [&](GroupBounds bounds, const char* name, const Operand& x) {
    g.layout.bounds = bounds;
    g.layout.wide = check_integer_line(x, name, device);
    g.count = x.shape[0];
    by = name;
    return x.data;
  };
  if (t.counts) {
    g.sizes = describe(GroupBounds::counts, "counts", *t.counts);
  } else if (t.starts) {
    g.offsets = describe(GroupBounds::starts, "starts", *t.starts);
    check_integer_line(*t.sizes, "sizes", device);
    check_sizes_fit(*t.starts, *t.sizes);
    g.sizes = t.sizes->data;
  } else if (t.indptr) {
    g.offsets = describe(GroupBounds::indptr, "indptr", *t.indptr);
    --g.count;
  } else {
    g.offsets = describe(GroupBounds::ends, "offs", *t.offs);
  }
  if (g.count < 1) {
    refuse_value("{} describes {} groups; pass bounds of 1 or more", by, max_of<int64_t>(g.count, 0));
  }
  g.layout.spacing = read_alignment(alignment, g.layout.bounds);
  if (alignment && t.offs) g.layout.bounds = GroupBounds::aligned_ends;
  return g;
}

int64_t read_expected_m(int64_t expected, const GemmProblem& problem) {
  if (problem.groups.dimension != Grouping::m)
    refuse_value("expected_m is {}, but {} is grouped; it is for groups of rows of a, leave it out", expected,
                 to_string(problem.groups.dimension));
  if (expected < 1) refuse_value("expected_m is {}; pass the rows that a group has on average, 1 or more", expected);
  if (problem.batch < 1 || problem.m > std::numeric_limits<int32_t>::max() || expected >= problem.m / problem.batch)
    return 0;
  const auto step = std::max<int64_t>(int64_t(std::bit_ceil(uint64_t(expected))) / 16, 1);
  const int64_t rows = round_up(expected, step);
  return rows * problem.batch < problem.m ? rows : 0;
}

}  // namespace cleave
