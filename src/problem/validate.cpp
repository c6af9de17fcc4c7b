// The rules of a GemmProblem. Each broken one is reported with the argument, the value seen and the
// remedy.

#include "cleave/core/math.h"
#include "cleave/names.h"
#include "problem/overlap.h"
#include "problem/problem.h"
#include "problem/rules.h"

namespace cleave {
namespace {

constexpr int32_t kMaxClusterSlices = 16;

// The smallest tile that a planner gives a large product: with more tiles than fit 31 bits, none
// can serve it.
constexpr int64_t kSmallTile = 64;

/// Whether the sizes make sense: only then can the layouts be judged.
bool check_sizes(const GemmProblem& p, Messages& out) {
  if (!check_geometry(p.conv, out)) return false;
  const size_t before = out.size();
  check_size("m", p.m, out);
  check_size("n", p.n, out);
  check_size("k", p.k, out);
  check_size("batch", p.batch, out);
  return out.size() == before;
}

void check_outputs(const GemmProblem& p, Messages& out) {
  const Placement c = c_of(p), d = d_of(p);
  const bool c_is_sound = !p.has_c || check_layout("c", c, false, out) || c.empty();
  if (!check_layout("d", d, true, out)) return;

  if (overlaps_itself(d)) {
    out.add(
        "d overlaps itself: with strides {}, {} and {} (row, column, batch), elements of [{}, {}, {}] share addresses. "
        "Pass a contiguous d",
        p.d.stride_row, p.d.stride_col, p.d.stride_batch, d.batch, p.m, p.n);
  }
  if (c_is_sound && !output_order(p)) {
    out.add(
        "c.stride_row is {} and c.stride_col is {}, but d's are {} and {}; c and d must both be row-major or both "
        "column-major. Copy c into d's order",
        p.c.stride_row, p.c.stride_col, p.d.stride_row, p.d.stride_col);
  }
}

/// Planners give no slice less than an element of K.
int64_t most_slices(const GemmProblem& p) {
  return min_of<int64_t>(max_of(p.split_k_slices, 1), max_of<int64_t>(p.k, 1));
}

void check_tile_count(const GemmProblem& p, Messages& out) {
  const Grouping grouping = p.groups.dimension;
  const auto along = [&](int64_t size, Grouping own) {
    if (grouping != own) return double(ceil_div(size, kSmallTile));
    return double(most_group_steps(own, uint32_t(size), uint32_t(p.batch), kSmallTile));
  };
  const bool ragged = grouping == Grouping::m || grouping == Grouping::n;
  const double tiles =
      along(p.m, Grouping::m) * along(p.n, Grouping::n) * (ragged ? 1.0 : double(p.batch)) * double(most_slices(p));
  if (tiles > double(kMaxSize)) {
    out.add(
        "m, n and batch are {}, {} and {}, and K has {} slices at least; that is more than 2^31 work units. Split the "
        "product, or use fewer slices",
        p.m, p.n, p.batch, most_slices(p));
  }
}

void check_bias(const GemmProblem& p, Messages& out) {
  if (p.bias == Bias::none || p.bias_stride_batch >= 0) return;
  out.add("bias_stride_batch is {}; strides must not be negative. Pass a contiguous copy of bias", p.bias_stride_batch);
}

void check_split(const GemmProblem& p, Messages& out) {
  const int32_t slices = p.split_k_slices;
  if (slices < 0) {
    out.add("split_k_slices is {}; pass 1 or more, or 0 to let the planner choose", slices);
  }
  if (p.split_k_mode == SplitKMode::none && slices > 1) {
    out.add("split_k_slices is {}, but split_k_mode is none; pass 1 slice or another mode", slices);
  }
  if (p.split_k_mode == SplitKMode::cluster && slices > kMaxClusterSlices) {
    out.add("split_k_slices is {}, but a cluster has at most {} CTAs; pass fewer slices or another split_k_mode",
            slices, kMaxClusterSlices);
  }
}

void check_determinism(const GemmProblem& p, Messages& out) {
  if (!is_batch_invariant(p)) return;
  const bool k_order = p.deterministic == Determinism::k_order;
  const char* const name = k_order ? "sum_order" : "deterministic";
  const char* const promise = k_order ? "k" : "batch_invariant";
  if (k_order && !may_keep_k_order(p)) {
    out.add(
        "sum_order is k, but {} is {}: slices of float sums begin at zero and are rounded before they are added, so "
        "that no split has the bits of the unsplit sum; leave split_k_mode and split_k_slices out",
        p.split_k_slices > 1 ? "split_k_slices" : "split_k_mode",
        p.split_k_slices > 1 ? std::to_string(p.split_k_slices) : std::string(to_string(p.split_k_mode)));
  }
  if (may_be_batch_invariant(p)) return;
  if (p.conv.kind != Conv::none) {
    out.add("{0} is {1}, but convolutions do not promise that; leave {0} out", name, promise);
  } else if (p.split_k_mode == SplitKMode::stream_k) {
    out.add(
        "{} is {}, but split_k_mode is stream_k, whose slices end where M says; pass another split_k_mode, or leave it "
        "out",
        name, promise);
  } else if (p.groups.dimension == Grouping::k || p.groups.dimension == Grouping::n) {
    out.add("{0} is {1}, but {2} is grouped: a row of D is no group's own. Group the rows of a, or leave {0} out", name,
            promise, p.groups.dimension == Grouping::k ? "K" : "N");
  } else {
    out.add(
        "{0} is {1}, but a is contiguous along M (strides {2}, {3}), so that how it can be loaded would change with M; "
        "copy a into rows, or leave {0} out",
        name, promise, p.a.stride_row, p.a.stride_col);
  }
}

void check_kernel(const GemmProblem& p, Messages& out) {
  if (p.device == kCpu && p.kernel != KernelFamily::automatic) {
    out.add("kernel is {}, but the device is the CPU, which has one kernel; leave it out", to_string(p.kernel));
  }
}

void check_precision(const GemmProblem& p, Messages& out) {
  if (p.precision == Precision::tf32) return;
  if (p.a.dtype != DType::f32) {
    out.add("precision is {}, but a is {}; float32 operands alone have that choice. Leave precision out",
            to_string(p.precision), to_string(p.a.dtype));
  } else if (p.kernel == KernelFamily::sm90) {
    out.add(
        "precision is {}, but kernel is sm90, which rounds float32 to tf32; pass kernel=\"portable\" or \"auto\", or "
        "precision=\"tf32\"",
        to_string(p.precision));
  }
}

}  // namespace

std::vector<std::string> validate(const GemmProblem& problem) {
  Messages out;
  if (check_sizes(problem, out)) {
    check_layout("a", a_of(problem), false, out);
    check_layout("b", b_of(problem), false, out);
    check_outputs(problem, out);
    check_tile_count(problem, out);
    check_scaling(problem, out);
    check_weights(problem, out);
    check_bias(problem, out);
    check_groups(problem, out);
    check_conv(problem, out);
    check_swiglu(problem, out);
    check_epilogue(problem, out);
  }
  check_types(problem, out);
  check_split(problem, out);
  check_device(problem.device, out);
  check_kernel(problem, out);
  check_precision(problem, out);
  check_determinism(problem, out);
  return out;
}

}  // namespace cleave
