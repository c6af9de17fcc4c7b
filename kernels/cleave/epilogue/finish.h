// The epilogue of a thread's accumulators, four at a time (see fragment.h): bounds, scales, C, bias,
// activation.
#pragma once

#include "cleave/epilogue/epilogue.h"
#include "cleave/epilogue/fragment.h"

namespace cleave {

template <GemmConfig C>
CLEAVE_HD constexpr EpilogueKind epilogue_kind() {
  return {C.c,    C.d,     C.bias_dtype,
          C.d_order, C.activation, C.bias,
          C.has_c, C.scaling == Scaling::vector, C.has_zero, C.has_scale_d};
}

/// What D's elements are before they are converted: integers stay integers.
template <GemmConfig C>
using Value = typename detail::SumOf<C.d == DType::i32>::type;

/// One tile's epilogue, as one thread sees it.
template <GemmConfig C>
class Finish {
 public:
  CLEAVE_DEVICE Finish(const EpilogueParams& p, uint32_t batch)
      : p_(p), batch_(batch), factor_(stored_factor(kKind, p)) {}

  /// Turns the sums of rows row, row + 8 and columns col, col + 1 into what D stores. Elements
  /// outside D get any value.
  CLEAVE_DEVICE void operator()(const Sum<C> (&sums)[4], uint32_t row, uint32_t col,
                                Value<C> (&values)[4]) {
    // Consecutive blocks mostly share their rows: once unrolled, this comparison costs nothing.
    if (kRowLines && row != row_) {
      row_ = row;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        if (row + i * 8 < p_.m) rows_[i] = epilogue_row(kKind, p_, row + i * 8, batch_);
      }
    }
    EpilogueLine columns[2];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      if (kColumnLines && col + i < p_.n) columns[i] = epilogue_column(kKind, p_, col + i, batch_);
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t r = row + i / 2 * 8, c = col + i % 2;
      if constexpr (C.d == DType::i32) {
        values[i] = epilogue_integer(kKind, sums[i], rows_[i / 2], columns[i % 2]);
      } else if ((!C.has_c && !C.has_amax) || (r < p_.m && c < p_.n)) {
        const float value =
            epilogue_value(kKind, p_, sums[i], rows_[i / 2], columns[i % 2], r, c, batch_);
        if (C.has_amax) amax_ = max_of(amax_, __float_as_uint(value) & 0x7fffffffu);
        values[i] = value * factor_;
      }
    }
  }

  /// After the last call, by all threads of a warp. Magnitudes order like their bits, NaNs last.
  CLEAVE_DEVICE void done() const {
    if constexpr (C.has_amax) {
      const uint32_t most = __reduce_max_sync(0xffffffffu, amax_);
      if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<uint32_t*>(p_.amax), most);
    }
  }

 private:
  static constexpr EpilogueKind kKind = epilogue_kind<C>();
  static constexpr bool kRowLines = kKind.scaled || kKind.has_zero || C.bias == Bias::column;
  static constexpr bool kColumnLines = kKind.scaled || kKind.has_zero || C.bias == Bias::row;

  const EpilogueParams& p_;
  uint32_t batch_;
  float factor_;
  uint32_t row_ = 0xffffffffu;
  EpilogueLine rows_[2];
  uint32_t amax_ = 0;
};

}  // namespace cleave
