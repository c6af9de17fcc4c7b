// The rules of a GemmProblem. Each broken one is reported with the argument, the value seen and the
// remedy.

#include <fmt/format.h>

#include <bit>
#include <limits>

#include "cleave/core/math.h"
#include "cleave/device.h"
#include "cleave/names.h"
#include "problem/overlap.h"
#include "problem/problem.h"

namespace cleave {
namespace {

using Messages = std::vector<std::string>;

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr int32_t kMaxClusterSlices = 16;

// The smallest tile that a planner gives a large product: with more tiles than fit 31 bits, none
// can serve it.
constexpr int64_t kSmallTile = 64;

/// Whether the sizes make sense: only then can the layouts be judged.
bool check_sizes(const GemmProblem& p, Messages& out) {
  const size_t before = out.size();
  const auto check = [&](const char* argument, int64_t size) {
    if (size < 0) {
      out.push_back(fmt::format("{} is {}; a size must not be negative", argument, size));
    } else if (size > kMaxSize) {
      out.push_back(
          fmt::format("{} is {}; at most 2^31 - 1 = {} is served. Split the product along {}",
                      argument, size, kMaxSize, argument));
    }
  };
  check("m", p.m);
  check("n", p.n);
  check("k", p.k);
  check("batch", p.batch);
  return out.size() == before;
}

void check_alignment(const char* argument, const MatrixLayout& layout, Messages& out) {
  const uint32_t size = size_of(layout.dtype);
  if (!std::has_single_bit(layout.alignment) || layout.alignment < size) {
    out.push_back(
        fmt::format("{}.alignment is {} bytes; it must be a power of two and at least the {} "
                    "bytes of a {}. Pass data aligned to its element type",
                    argument, layout.alignment, size, to_string(layout.dtype)));
  }
}

/// One stride of a dimension that has more than one element; true if it may be used in address
/// arithmetic.
bool check_stride(const char* argument, const char* which, int64_t stride, bool may_be_zero,
                  Messages& out) {
  if (stride > 0 || (stride == 0 && may_be_zero)) return true;
  if (stride < 0) {
    out.push_back(
        fmt::format("{}.{} is {}; strides must not be negative. Pass a contiguous copy of {}",
                    argument, which, stride, argument));
  } else {
    out.push_back(
        fmt::format("{0}.{1} is 0, so elements of {0} share an address; only the batch stride "
                    "of a, b and c may be 0. Pass a contiguous copy of {0}",
                    argument, which));
  }
  return false;
}

/// True if the matrix has addresses worth judging further.
bool check_layout(const char* argument, const Placement& matrix, bool written, Messages& out) {
  const MatrixLayout& layout = matrix.layout;
  check_alignment(argument, layout, out);
  if (matrix.empty()) return false;

  const auto check = [&](const char* which, int64_t size, int64_t stride, bool may_be_zero) {
    return size == 1 || check_stride(argument, which, stride, may_be_zero, out);
  };
  const bool rows = check("stride_row", matrix.rows, layout.stride_row, false);
  const bool columns = check("stride_col", matrix.columns, layout.stride_col, false);
  const bool entries = check("stride_batch", matrix.batch, layout.stride_batch, !written);
  if (!rows || !columns || !entries) return false;

  if (matrix.rows > 1 && matrix.columns > 1 && layout.stride_row != 1 && layout.stride_col != 1) {
    out.push_back(
        fmt::format("{0}.stride_row is {1} and {0}.stride_col is {2}; one of them must be 1. "
                    "Pass a contiguous copy of {0}",
                    argument, layout.stride_row, layout.stride_col));
    return false;
  }

  __extension__ using Wide = __int128;
  const auto reach = [](int64_t size, int64_t stride) {
    return size > 1 ? Wide(size - 1) * stride : Wide(0);
  };
  const Wide elements = 1 + reach(matrix.rows, layout.stride_row) +
                        reach(matrix.columns, layout.stride_col) +
                        reach(matrix.batch, layout.stride_batch);
  if (elements * size_of(layout.dtype) > std::numeric_limits<int64_t>::max()) {
    out.push_back(
        fmt::format("{0} spans more than 2^63 bytes with strides {1}, {2} and {3} (row, column, "
                    "batch); pass strides that count elements of a real tensor",
                    argument, layout.stride_row, layout.stride_col, layout.stride_batch));
    return false;
  }
  return true;
}

void check_operands(const GemmProblem& p, Messages& out) {
  check_layout("a", {p.a, p.m, p.k, p.batch}, false, out);
  check_layout("b", {p.b, p.k, p.n, p.batch}, false, out);
  if (p.a.dtype != p.b.dtype) {
    out.push_back(fmt::format("a is {} and b is {}; they must be equal. Convert one of them",
                              to_string(p.a.dtype), to_string(p.b.dtype)));
  }
}

void check_outputs(const GemmProblem& p, Messages& out) {
  const Placement c{p.c, p.m, p.n, p.batch}, d{p.d, p.m, p.n, p.batch};
  const bool c_is_sound = !p.has_c || check_layout("c", c, false, out) || c.empty();
  if (!check_layout("d", d, true, out)) return;

  if (overlaps_itself(d)) {
    out.push_back(
        fmt::format("d overlaps itself: with strides {}, {} and {} (row, column, batch), elements "
                    "of [{}, {}, {}] share addresses. Pass a contiguous d",
                    p.d.stride_row, p.d.stride_col, p.d.stride_batch, p.batch, p.m, p.n));
  }
  if (c_is_sound && !output_order(p)) {
    out.push_back(
        fmt::format("c.stride_row is {} and c.stride_col is {}, but d's are {} and {}; c and d "
                    "must both be row-major or both column-major. Copy c into d's order",
                    p.c.stride_row, p.c.stride_col, p.d.stride_row, p.d.stride_col));
  }
}

void check_tile_count(const GemmProblem& p, Messages& out) {
  const double tiles = double(ceil_div(p.m, kSmallTile)) * double(ceil_div(p.n, kSmallTile)) *
                       double(p.batch) * max_of(p.split_k_slices, 1);
  if (tiles > double(kMaxSize)) {
    out.push_back(
        fmt::format("m, n, batch and split_k_slices are {}, {}, {} and {}; that is more than 2^31 "
                    "work units. Split the product, or use fewer slices",
                    p.m, p.n, p.batch, p.split_k_slices));
  }
}

void check_split(const GemmProblem& p, Messages& out) {
  const int32_t slices = p.split_k_slices;
  if (slices < 0) {
    out.push_back(fmt::format(
        "split_k_slices is {}; pass 1 or more, or 0 to let the planner choose", slices));
  } else if (p.k > 0 && slices > p.k) {
    out.push_back(
        fmt::format("split_k_slices is {0}, but k is {1}: a slice needs at least one element of K. "
                    "Pass at most {1}",
                    slices, p.k));
  }
  if (p.split_k_mode == SplitKMode::none && slices > 1) {
    out.push_back(fmt::format(
        "split_k_slices is {}, but split_k_mode is none; pass 1 slice or another mode", slices));
  }
  if (p.split_k_mode == SplitKMode::cluster && slices > kMaxClusterSlices) {
    out.push_back(
        fmt::format("split_k_slices is {}, but a cluster has at most {} blocks; pass fewer slices "
                    "or another split_k_mode",
                    slices, kMaxClusterSlices));
  }
}

void check_device(const GemmProblem& p, Messages& out) {
  if (p.device < kPlanOnlyH100) {
    out.push_back(
        fmt::format("device is {}; pass a CUDA ordinal from 0, {} for the CPU, or {} to plan for "
                    "an H100 without one",
                    p.device, kCpu, kPlanOnlyH100));
  }
  if (p.device == kCpu && p.kernel != KernelFamily::automatic) {
    out.push_back(
        fmt::format("kernel is {}, but the device is the CPU, which has one kernel; pass "
                    "kernel=\"auto\"",
                    to_string(p.kernel)));
  }
}

}  // namespace

std::vector<std::string> validate(const GemmProblem& problem) {
  Messages out;
  if (check_sizes(problem, out)) {
    check_operands(problem, out);
    check_outputs(problem, out);
    check_tile_count(problem, out);
  }
  check_split(problem, out);
  check_device(problem, out);
  return out;
}

}  // namespace cleave
