// The rules that the sizes, layouts and devices of all problems share.

#include <fmt/format.h>

#include <bit>

#include "cleave/device.h"
#include "cleave/names.h"
#include "problem/rules.h"

namespace cleave {
namespace {

/// One stride of a dimension that has more than one element; true if it may be used in address
/// arithmetic.
bool check_stride(const char* argument, const char* which, int64_t stride, bool may_be_zero, Messages& out) {
  if (stride > 0 || (stride == 0 && may_be_zero)) return true;
  if (stride < 0) {
    out.push_back(fmt::format("{}.{} is {}; strides must not be negative. Pass a contiguous copy of {}", argument,
                              which, stride, argument));
  } else {
    out.push_back(
        fmt::format("{0}.{1} is 0, so elements of {0} share an address; only the batch "
                    "stride of an input may be 0. Set it to the elements from one to the next, or, "
                    "where {0} is broadcast, pass a contiguous copy",
                    argument, which));
  }
  return false;
}

}  // namespace

bool check_size(const char* argument, int64_t size, Messages& out) {
  if (size < 0) {
    out.push_back(fmt::format("{} is {}; a size must not be negative", argument, size));
  } else if (size > kMaxSize) {
    out.push_back(fmt::format("{} is {}; at most 2^31 - 1 = {} is served. Split the problem along {}", argument, size,
                              kMaxSize, argument));
  }
  return size >= 0 && size <= kMaxSize;
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

  if (!addressable(matrix)) {
    out.push_back(
        fmt::format("{0} spans more than 2^63 bytes with strides {1}, {2} and {3} (row, column, "
                    "batch); pass strides that count elements of a real tensor",
                    argument, layout.stride_row, layout.stride_col, layout.stride_batch));
    return false;
  }
  return true;
}

void check_device(int device, Messages& out) {
  if (device >= kPlanOnlyH100) return;
  out.push_back(
      fmt::format("device is {}; pass a CUDA ordinal from 0, {} for the CPU, or {} to plan for "
                  "an H100 without one",
                  device, kCpu, kPlanOnlyH100));
}

}  // namespace cleave
