// The rules that the sizes, layouts and devices of all problems share.

#include <bit>

#include "base/contiguous.h"
#include "cleave/device.h"
#include "cleave/names.h"
#include "problem/overlap.h"
#include "problem/rules.h"

namespace cleave {

bool check_stride(const char* argument, const char* which, int64_t stride, bool may_be_zero, bool written,
                  Messages& out) {
  if (stride > 0 || (stride == 0 && may_be_zero)) return true;
  if (stride < 0) {
    out.add("{}.{} is {}; strides must not be negative. {}", argument, which, stride,
            pass_contiguous(argument, written));
  } else {
    out.add(
        "{0}.{1} is 0, so elements of {0} share an address; only the batch stride of an input may be 0. Set it to the "
        "elements from one to the next, or, where {0} is broadcast: {2}",
        argument, which, pass_contiguous(argument, written));
  }
  return false;
}

bool check_size(const char* argument, int64_t size, Messages& out) {
  if (size < 0) {
    out.add("{} is {}; a size must not be negative", argument, size);
  } else if (size > kMaxSize) {
    out.add("{} is {}; at most 2^31 - 1 = {} is served. Split the problem along {}", argument, size, kMaxSize,
            argument);
  }
  return size >= 0 && size <= kMaxSize;
}

void check_alignment(const char* argument, const MatrixLayout& layout, Messages& out) {
  const uint32_t size = size_of(layout.dtype);
  if (!std::has_single_bit(layout.alignment) || layout.alignment < size) {
    out.add(
        "{}.alignment is {} bytes; it must be a power of two and at least the {} bytes of a {}. Pass data aligned to "
        "its element type",
        argument, layout.alignment, size, to_string(layout.dtype));
  }
}

bool check_layout(const char* argument, const Placement& matrix, bool written, Messages& out) {
  const MatrixLayout& layout = matrix.layout;
  check_alignment(argument, layout, out);
  if (matrix.empty()) return false;

  const auto check = [&](const char* which, int64_t size, int64_t stride, bool may_be_zero) {
    return size == 1 || check_stride(argument, which, stride, may_be_zero, written, out);
  };
  const bool rows = check("stride_row", matrix.rows, layout.stride_row, false);
  const bool columns = check("stride_col", matrix.columns, layout.stride_col, false);
  const bool entries = check("stride_batch", matrix.batch, layout.stride_batch, !written);
  if (!rows || !columns || !entries) return false;

  if (matrix.rows > 1 && matrix.columns > 1 && layout.stride_row != 1 && layout.stride_col != 1) {
    out.add("{0}.stride_row is {1} and {0}.stride_col is {2}; one of them must be 1. {3}", argument, layout.stride_row,
            layout.stride_col, pass_contiguous(argument, written));
    return false;
  }

  return check_addressable(argument, matrix, "row, column, batch", out);
}

bool check_addressable(const char* argument, const Placement& matrix, const char* dimensions, Messages& out) {
  if (addressable(matrix)) return true;
  const MatrixLayout& layout = matrix.layout;
  out.add(
      "{} spans more than 2^63 bytes with strides {}, {} and {} ({}); pass strides that count elements of a real "
      "tensor",
      argument, layout.stride_row, layout.stride_col, layout.stride_batch, dimensions);
  return false;
}

void check_rows(const char* argument, const Placement& matrix, bool written, Messages& out) {
  if (!check_layout(argument, matrix, written, out)) return;
  if (matrix.columns > 1 && matrix.layout.stride_col != 1) {
    out.add("{}.stride_col is {}; it must be 1, so that rows are contiguous. {}", argument, matrix.layout.stride_col,
            pass_contiguous(argument, written));
  } else if (written && overlaps_itself(matrix)) {
    out.add("{0} overlaps itself: its rows have {1} elements, but start {2} apart. Pass a contiguous {0}", argument,
            matrix.columns, matrix.layout.stride_row);
  }
}

void check_device(int device, Messages& out) {
  if (device >= kPlanOnlyH200) return;
  out.add(
      "device is {}; pass a CUDA ordinal from 0, {} for the CPU, or {} or {} to plan for an H100 or H200 without one",
      device, kCpu, kPlanOnlyH100, kPlanOnlyH200);
}

}  // namespace cleave
