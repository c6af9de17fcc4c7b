// Reading x and writing q, `width` neighbours at a time.
#pragma once

#include "cleave/quantize/quantize_config.h"
#include "cleave/quantize/quantize_params.h"

namespace cleave {

/// Bytes that move together.
template <uint32_t Bytes>
struct alignas(Bytes) Packed {
  uint8_t bytes[Bytes];
};

template <uint32_t Bytes>
CLEAVE_DEVICE Packed<Bytes> load_packed(const void* from) {
  return *static_cast<const Packed<Bytes>*>(from);
}

/// x from (row, col) on, smoothed.
template <QuantizeConfig C>
CLEAVE_DEVICE void load_values(const QuantizeParams& p, uint32_t row, int64_t col,
                               float (&values)[C.width]) {
  constexpr uint32_t kSize = size_of(C.x);
  const auto x = static_cast<const char*>(p.x) + (row * p.x_stride + col) * kSize;
  const auto packed = load_packed<C.width * kSize>(x);
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < C.width; ++i) values[i] = load_element(C.x, packed.bytes, i);
  if constexpr (C.has_smooth) {
    constexpr uint32_t kTogether = min_of(C.width, 4u);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.width; i += kTogether) {
      const auto smooth = load_packed<kTogether * 4>(p.smooth + col + i);
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kTogether; ++j)
        values[i + j] /= load_element(DType::f32, smooth.bytes, j);
    }
  }
}

/// q from (row, col) on.
template <QuantizeConfig C>
CLEAVE_DEVICE void store_values(const QuantizeParams& p, uint32_t row, int64_t col,
                                const Quantizer& quantizer, const float (&values)[C.width]) {
  Packed<C.width> packed;
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < C.width; ++i)
    store_element(C.q, packed.bytes, i, quantized(quantizer, C.symmetric, values[i]));
  *reinterpret_cast<Packed<C.width>*>(static_cast<char*>(p.q) + row * p.q_stride + col) = packed;
}

}  // namespace cleave
