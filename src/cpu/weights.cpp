#include "cpu/weights.h"

#include "cleave/core/element.h"
#include "cleave/core/math.h"
#include "cleave/memory/weight_layout.h"
#include "cpu/micro_kernel.h"
#include "problem/placement.h"

namespace cleave::cpu {
namespace {

/// One matrix of a batch.
class Weight {
 public:
  Weight(const GemmProblem& problem, const GemmArguments& arguments, uint32_t entry)
      : type_(problem.b.dtype),
        gated_(is_gated(problem)),
        n_(uint32_t(problem.n)),
        k_(uint64_t(problem.k)),
        layout_(problem.weights_b),
        scale_type_(weight_scale_type(layout_.format, type_)),
        codes_(static_cast<const uint8_t*>(arguments.b) + int64_t(entry) * b_of(problem).layout.stride_batch),
        scales_(arguments.weight_scale),
        zeros_(arguments.weight_zero),
        first_(int64_t(entry) * layout_.scale_stride_batch) {}

  /// `row`: of the product's columns. Under a gate the ups' follow the gates'.
  float operator()(uint32_t row, uint32_t column) const {
    if (gated_) row = weight_gate_row(row % n_, row >= n_);
    const WeightPlace place = weight_place({row % kWeightBlock, column % kWeightBlock});
    const uint32_t code = codes_[weight_block_offset(row, column, k_) + place.byte()] >> place.bit_of_byte() & 15;
    const int64_t at = first_ + column / layout_.group * layout_.scale_stride_k + row;
    const int zero = layout_.has_zero ? zeros_[at] : 8;
    const float value = layout_.format == WeightFormat::int4 ? float(int(code) - zero) : e2m1_to_float(code);
    const float element = value * scale(at);
    return size_of(type_) == 1 ? element : rounded_to(type_, element);  // of bytes sums are scaled
  }

 private:
  float scale(int64_t at) const {
    if (scale_type_ == DType::i8) return e8m0_to_float(static_cast<const uint8_t*>(scales_)[at]);
    return load_element(scale_type_, scales_, at);
  }

  DType type_;
  bool gated_;
  uint32_t n_;
  uint64_t k_;
  const WeightLayout& layout_;
  DType scale_type_;
  const uint8_t* codes_;
  const void* scales_;
  const uint8_t* zeros_;
  int64_t first_;
};

}  // namespace

void pack_weights(const GemmProblem& problem, const GemmArguments& arguments, uint32_t entry, Span columns, Span k,
                  float* out) {
  const Weight weight(problem, arguments, entry);
  for (uint32_t begin = 0; begin < columns.count; begin += kMicroColumns, out += kMicroColumns * k.count) {
    const uint32_t used = min_of(kMicroColumns, columns.count - begin);
    for (uint32_t p = 0; p < k.count; ++p) {
      for (uint32_t i = 0; i < kMicroColumns; ++i)
        out[p * kMicroColumns + i] = i < used ? weight(columns.first + begin + i, k.first + p) : 0.0f;
    }
  }
}

}  // namespace cleave::cpu
