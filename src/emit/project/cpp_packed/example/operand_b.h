// B, a packed weight or several, of random codes.
#pragma once

#include <vector>

#include "cleave/memory/weight_layout.h"
#include "tensor.h"
#include "view.h"

namespace emitted::operation::example {

class OperandB {
  static constexpr cleave::WeightFormat kFormat = kOperation.weights_b.format;
  static constexpr cleave::DType kScaleType = cleave::weight_scale_type(kFormat, kOperation.b.dtype);

 public:
  explicit OperandB(const cleave::GemmProblem& p)
      : p_(p),
        entry_bytes_(int64_t(cleave::weight_bytes(uint64_t(columns_of_b(p)), uint64_t(p.k)))),
        entry_scales_(p.k / p.weights_b.group * columns_of_b(p)),
        codes_(cleave::DType::i8, entries_of_b(p) * entry_bytes_),
        scales_(kScaleType, entries_of_b(p) * entry_scales_),
        zeros_(cleave::DType::i8, entries_of_b(p) * entry_scales_),
        factors_(cleave::DType::f32, entries_of_b(p)) {}

  void fill() {
    codes_.assign(bytes(entries_of_b(p_) * entry_bytes_, 0, 256));
    if (kScaleType == cleave::DType::i8)
      scales_.assign(bytes(entries_of_b(p_) * entry_scales_, 122, 4));
    else
      scales_.fill(0.05f, 0.15f);
    zeros_.assign(bytes(entries_of_b(p_) * entry_scales_, 0, 16));
    factors_.fill(0.5f, 1.5f);
  }
  template <class Arguments>
  void fill(Arguments& x) const {
    x.b = codes_.device();
    x.scales = scales_.device();
    if constexpr (requires { x.zeros; }) x.zeros = zeros_.template device<const uint8_t>();
    if constexpr (requires { x.global_scale; }) x.global_scale = factors_.template device<const float>();
  }

  /// The element as which the code is multiplied. `column`: of gates, which ups follow.
  double operator()(int64_t entry, int64_t row, int64_t column) const {
    if (is_gated(p_)) column = cleave::weight_gate_row(column % p_.n, column >= p_.n);
    const uint32_t code = code_of(entry, row, column);
    const int64_t at = entry * entry_scales_ + row / p_.weights_b.group * columns_of_b(p_) + column;
    double value = cleave::e2m1_to_float(code);
    if (kFormat == cleave::WeightFormat::int4) value = double(code) - (kOperation.weights_b.has_zero ? zeros_[at] : 8);
    const double scale = kScaleType == cleave::DType::i8 ? cleave::e8m0_to_float(uint8_t(scales_[at])) : scales_[at];
    const bool rounds = cleave::size_of(kOperation.b.dtype) > 1;  // else sums of codes are scaled
    return rounds ? cleave::rounded_to(kOperation.b.dtype, float(value * scale)) : value * scale;
  }
  /// What sums are multiplied by.
  double factor(int64_t entry) const { return kFormat == cleave::WeightFormat::nvfp4 ? factors_[entry] : 1; }

 private:
  static std::vector<uint8_t> bytes(int64_t count, int64_t first, int64_t several) {
    std::vector<uint8_t> values;
    values.resize(size_t(count));
    for (uint8_t& value : values) value = uint8_t(first + draw(several));
    return values;
  }
  uint32_t code_of(int64_t entry, int64_t row, int64_t column) const {
    const cleave::WeightPlace place =
        cleave::weight_place({uint32_t(column % cleave::kWeightBlock), uint32_t(row % cleave::kWeightBlock)});
    const auto block = int64_t(cleave::weight_block_offset(uint64_t(column), uint64_t(row), uint64_t(p_.k)));
    return uint8_t(int(codes_[entry * entry_bytes_ + block + place.byte()])) >> place.bit_of_byte() & 15;
  }

  const cleave::GemmProblem& p_;
  const int64_t entry_bytes_, entry_scales_;
  Tensor codes_, scales_, zeros_, factors_;
};

}  // namespace emitted::operation::example
