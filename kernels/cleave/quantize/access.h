// Reading x and writing q, `width` neighbours at a time.
#pragma once

#include "cleave/memory/packed.h"
#include "cleave/quantize/quantize_config.h"
#include "cleave/quantize/quantize_params.h"

namespace cleave {

/// x from (row, col) on, smoothed.
template <QuantizeConfig C>
CLEAVE_DEVICE void load_values(const QuantizeParams& p, uint32_t row, int64_t col, float (&values)[C.width]) {
  constexpr uint32_t kSize = size_of(C.x);
  const auto x = static_cast<const char*>(p.x) + (row * p.x_stride + col) * kSize;
  const auto packed = load_packed<C.width * kSize>(x);
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < C.width; ++i) values[i] = load_element(C.x, packed.bytes(), i);
  if constexpr (C.has_smooth) {
    constexpr uint32_t kInFlight = min_of(C.width, 4u);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.width; i += kInFlight) {
      const auto smooth = load_packed<kInFlight * 4>(p.smooth + col + i);
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kInFlight; ++j) values[i + j] /= load_element(DType::f32, smooth.bytes(), j);
    }
  }
}

/// q from (row, col) on.
template <QuantizeConfig C>
CLEAVE_DEVICE void store_values(const QuantizeParams& p, uint32_t row, int64_t col, const Quantizer& quantizer,
                                const float (&values)[C.width]) {
  Packed<C.width> packed;
  if constexpr (is_fp8(C.q) && C.width > 1) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.width; i += 2) {
      reinterpret_cast<uint16_t*>(packed.bytes())[i / 2] = pack_fp8<mantissa_of(C.q)>(
          quantized(quantizer, C.symmetric, values[i]), quantized(quantizer, C.symmetric, values[i + 1]));
    }
  } else {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.width; ++i)
      store_element(C.q, packed.bytes(), i, quantized(quantizer, C.symmetric, values[i]));
  }
  store_packed(static_cast<char*>(p.q) + row * p.q_stride + col, packed);
}

}  // namespace cleave
