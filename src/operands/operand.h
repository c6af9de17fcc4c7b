// A tensor of any framework, as an argument of an operation.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "base/enumerators.h"
#include "cleave/gemm.h"

namespace cleave {

struct Operand {
  static constexpr int kMaxRank = 5;

  void* data = nullptr;
  DType dtype = DType::f32;
  std::string other_type;  ///< the name of a type that no DType stands for; empty: `dtype` is it
  bool int64 = false;      ///< other_type is that of 64-bit integers, which bounds of groups can be
  int device = kCpu;
  int ndim = 0;
  int64_t shape[kMaxRank] = {};   ///< not filled if ndim is larger
  int64_t stride[kMaxRank] = {};  ///< in elements

  // The matrices in it: ndim is 2 or 3.
  int64_t rows() const { return shape[ndim - 2]; }
  int64_t columns() const { return shape[ndim - 1]; }
  int64_t batch() const { return ndim == 3 ? shape[0] : 1; }

  bool empty() const;  ///< ndim is at most kMaxRank

  bool is_one_of(std::span<const DType> types) const;
  std::string type_name() const;
};

// In the order of DType: the wide floats, what has 8 bits, and int32.
inline constexpr std::span<const DType> kAnyType = values_of<DType>;
inline constexpr auto kMultipliedTypes = kAnyType.first(kAnyType.size() - 1);
inline constexpr auto kFloatTypes = kAnyType.first(size_t(std::ranges::count_if(kAnyType, is_wide_float)));
inline constexpr auto kQuantizedTypes = kMultipliedTypes.subspan(kFloatTypes.size());
inline constexpr DType kFloat32[] = {DType::f32};
inline constexpr DType kInt32[] = {DType::i32};

/// "(3, 4)".
std::string shape_text(const Operand& operand);

/// "cpu" or "cuda:1".
std::string device_text(int device);

/// "float16, bfloat16 or float32".
std::string types_text(std::span<const DType> types);

/// The ranks and types that an argument may have.
struct Form {
  int min_rank, max_rank;
  std::span<const DType> types;
  bool written = false;  ///< by the operation: a converted copy would not do
};

/// Throws Error(invalid_argument) unless the rank is from `min_rank` to `max_rank`.
void check_rank(const Operand& operand, const char* name, int min_rank, int max_rank);

/// Throws Error(invalid_type) unless the type is one of `types`. `written`: as Form's.
void check_type(const Operand& operand, const char* name, std::span<const DType> types, bool written = false);

/// Throws Error(invalid_argument) unless `operand` lies on `device`, and has data if it has
/// elements. `leader` is the name of the argument whose device it is.
void check_place(const Operand& operand, const char* name, int device, const char* leader);

/// Checks all three.
void check_form(const Operand& operand, const char* name, const Form& form, int device, const char* leader);

/// What helps where a tensor does not lie as it must. `written`: whether the operation writes it.
std::string contiguous_remedy(const char* name, bool written);

/// Throws Error(invalid_argument) if neither of the last two strides is 1.
MatrixLayout layout_of(const Operand& operand, const char* name, bool written = false);

/// The matrix whose rows are `x`'s columns.
Operand transposed(Operand x);

/// [groups, rows, ...] as [groups * rows, ...]. Throws Error(invalid_argument) unless all rows are
/// the same distance apart.
Operand stacked(const Operand& x, const char* name, bool written = false);

/// The same of groups anywhere: from a group's begin to the next one's it is `gap` elements more than its rows take.
Operand stacked_apart(const Operand& x, int64_t& gap);

/// The layout of new matrices, packed row by row.
MatrixLayout packed_layout(DType dtype, int64_t batch, int64_t rows, int64_t columns);

/// Such a matrix, at `data`.
Operand packed_matrix(void* data, DType dtype, int device, int64_t rows, int64_t columns);

/// The largest power of two up to 16 that divides the address: MatrixLayout::alignment.
uint32_t alignment_of(const void* data);

/// The number of elements if they are one contiguous line, else nullopt.
std::optional<int64_t> line_length(const Operand& operand);

/// Throws Error unless it is a contiguous line of so many elements; `what` may say of what, after a comma.
void check_line(const Operand& operand, const char* name, int64_t length, const char* what = "");

/// The address of a tensor of one float32. Throws Error, as check_form does, for any other.
float* one_value(const Operand& operand, const char* name, int device, const char* leader);

/// `value` as float32; throws Error(invalid_argument) for a finite one beyond its range.
float float32_of(double value, const char* name);

}  // namespace cleave
