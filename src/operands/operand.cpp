#include "operands/operand.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/contiguous.h"
#include "base/refuse.h"
#include "cleave/core/saturate.h"
#include "cleave/names.h"
#include "problem/placement.h"

namespace cleave {

bool Operand::empty() const {
  return std::find(shape, shape + ndim, 0) != shape + ndim;
}

bool Operand::is_one_of(std::span<const DType> types) const {
  return other_type.empty() && std::ranges::find(types, dtype) != types.end();
}

std::string Operand::type_name() const {
  return other_type.empty() ? std::string(to_string(dtype)) : other_type;
}

std::string shape_text(const Operand& operand) {
  if (operand.ndim > Operand::kMaxRank) return fmt::format("of {} dimensions", operand.ndim);
  std::string text;
  for (int i = 0; i < operand.ndim; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", operand.shape[i]);
  }
  return fmt::format("({}{})", text, operand.ndim == 1 ? "," : "");
}

std::string device_text(int device) {
  return device == kCpu ? "cpu" : fmt::format("cuda:{}", device);
}

std::string types_text(std::span<const DType> types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0) text += i + 1 == types.size() ? " or " : ", ";
    text += to_string(types[i]);
  }
  return text;
}

void check_type(const Operand& operand, const char* name, std::span<const DType> types, bool written) {
  if (operand.is_one_of(types)) return;
  refuse_type("{} is {}; it must be {}, {}", name, operand.type_name(), types_text(types),
              written ? "pass an array of such a type" : "convert it");
}

void check_rank(const Operand& operand, const char* name, int min_rank, int max_rank) {
  if (operand.ndim >= min_rank && operand.ndim <= max_rank) return;
  const int between = max_rank - min_rank;
  refuse_value("{} has {} dimension{}; it must have {}{}", name, operand.ndim, operand.ndim == 1 ? "" : "s", min_rank,
               between == 0 ? "" : fmt::format(" {} {}", between == 1 ? "or" : "to", max_rank));
}

void check_place(const Operand& operand, const char* name, int device, const char* leader) {
  if (operand.device != device) {
    refuse_value("tensors on different devices: {} is on {}, {} on {}; move them to one device", leader,
                 device_text(device), name, device_text(operand.device));
  }
  if (!operand.data && !operand.empty()) {
    refuse_value("{} has a shape but no data; meta, fake and traced tensors cannot be computed with", name);
  }
}

void check_form(const Operand& operand, const char* name, const Form& form, int device, const char* leader) {
  check_rank(operand, name, form.min_rank, form.max_rank);
  check_type(operand, name, form.types, form.written);
  check_place(operand, name, device, leader);
}

Operand transposed(Operand x) {
  std::swap(x.shape[x.ndim - 2], x.shape[x.ndim - 1]);
  std::swap(x.stride[x.ndim - 2], x.stride[x.ndim - 1]);
  return x;
}

std::string contiguous_remedy(const char* name, bool written) {
  const std::string remedy = pass_contiguous(name, written);
  return written ? remedy : fmt::format("{0}: {1}.contiguous() in torch, numpy.ascontiguousarray({1})", remedy, name);
}

Operand stacked(const Operand& x, const char* name, bool written) {
  int64_t gap = 0;
  Operand flat = stacked_apart(x, gap);
  if (gap != 0) {
    refuse_value(
        "{0} is {1} with strides ({2}, {3}, ...); with counts, a group must begin where the one before has its last "
        "row: a stride of {4}, not {2}. {5}",
        name, shape_text(x), x.stride[0], x.stride[1], x.stride[0] - gap, contiguous_remedy(name, written));
  }
  return flat;
}

Operand stacked_apart(const Operand& x, int64_t& gap) {
  const int64_t rows = x.shape[1];
  const bool spaced = x.shape[0] > 1 && rows > 1 && !x.empty();
  gap = spaced ? x.stride[0] - saturating_product(rows, x.stride[1]) : 0;
  Operand flat = x;
  flat.ndim = x.ndim - 1;
  flat.shape[0] = saturating_product(x.shape[0], rows);
  flat.stride[0] = rows > 1 ? x.stride[1] : x.stride[0];
  for (int i = 1; i < flat.ndim; ++i) {
    flat.shape[i] = x.shape[i + 1];
    flat.stride[i] = x.stride[i + 1];
  }
  return flat;
}

MatrixLayout layout_of(const Operand& x, const char* name, bool written) {
  if (x.empty()) {  // NumPy may say strides of 0
    return {.dtype = x.dtype, .stride_row = x.columns()};
  }
  int64_t row = x.stride[x.ndim - 2];
  int64_t col = x.stride[x.ndim - 1];
  if (row != 1 && col != 1) {
    // A dimension of one element has no stride to speak of.
    if (x.columns() <= 1) {
      col = 1;
    } else if (x.rows() <= 1) {
      row = 1;
    } else {
      refuse_value("{} has strides ({}, {}); one of them must be 1. {}", name, row, col,
                   contiguous_remedy(name, written));
    }
  }
  return {.dtype = x.dtype,
          .stride_row = row,
          .stride_col = col,
          .stride_batch = x.batch() == 1 ? 0 : x.stride[0],
          .alignment = alignment_of(x.data)};
}

MatrixLayout packed_layout(DType dtype, int64_t batch, int64_t rows, int64_t columns) {
  return {.dtype = dtype,
          .stride_row = columns,
          .stride_col = 1,
          .stride_batch = batch == 1 ? 0 : saturating_product(rows, columns)};
}

Operand packed_matrix(void* data, DType dtype, int device, int64_t rows, int64_t columns) {
  Operand x{.data = data, .dtype = dtype, .device = device, .ndim = 2};
  x.shape[0] = rows, x.shape[1] = columns;
  x.stride[0] = columns, x.stride[1] = 1;
  return x;
}

uint32_t alignment_of(const void* data) {
  return common_alignment(reinterpret_cast<uintptr_t>(data));
}

std::optional<int64_t> line_length(const Operand& x) {
  int64_t length = 1;
  for (int i = x.ndim - 1; i >= 0; --i) {
    if (x.shape[i] == 1) continue;
    if (length != 1 || (x.stride[i] != 1 && x.shape[i] != 0)) return std::nullopt;
    length = x.shape[i];
  }
  return length;
}

void check_line(const Operand& x, const char* name, int64_t length, const char* what) {
  if (line_length(x) == length) return;
  const bool is_spread = std::count_if(x.shape, x.shape + x.ndim, [](int64_t size) { return size != 1; }) == 1 &&
                         std::find(x.shape, x.shape + x.ndim, length) != x.shape + x.ndim;
  if (is_spread) refuse_value("{} is not contiguous. {}", name, contiguous_remedy(name, false));
  refuse_value("{} is {}; it must be ({},), contiguous{}", name, shape_text(x), length, what);
}

float* one_value(const Operand& operand, const char* name, int device, const char* leader) {
  check_form(operand, name, {0, Operand::kMaxRank, kFloat32}, device, leader);
  if (line_length(operand) != 1) refuse_value("{} is {}; it must hold one value", name, shape_text(operand));
  return static_cast<float*>(operand.data);
}

float float32_of(double value, const char* name) {
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) {
    refuse_value("{} is {}, too large for float32", name, value);
  }
  return float(value);
}

}  // namespace cleave
