// Reading x and writing q, `width` neighbours at a time.
#pragma once

#include "cleave/core/sigmoid.h"
#include "cleave/memory/packed.h"
#include "cleave/quantize/quantize_config.h"
#include "cleave/quantize/quantize_params.h"

namespace cleave {

/// Neighbouring elements as memory has them, in accesses of up to 16 bytes.
template <DType Type, uint32_t Width>
struct Elements {
  static constexpr uint32_t kSize = size_of(Type), kPart = min_of(Width, 16 / kSize);
  Packed<kPart * kSize> parts[Width / kPart];

  /// Those from element `index` of an array on.
  CLEAVE_DEVICE static Elements load(const void* base, int64_t index) {
    Elements elements;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Width; i += kPart)
      elements.parts[i / kPart] = load_packed<kPart * kSize>(static_cast<const char*>(base) + (index + i) * kSize);
    return elements;
  }

  /// Rounded to nearest even.
  CLEAVE_DEVICE static Elements of(const float (&values)[Width]) {
    Elements elements;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Width; ++i) {
      uint8_t* const part = elements.parts[i / kPart].bytes();
      if constexpr (kSize == 2 && Width > 1) {
        if (i % 2 == 0) reinterpret_cast<uint32_t*>(part)[i % kPart / 2] = pack_pair(Type, values[i], values[i + 1]);
      } else {
        store_element(Type, part, i % kPart, values[i]);
      }
    }
    return elements;
  }

  CLEAVE_DEVICE void store(void* base, int64_t index) const {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Width; i += kPart)
      store_packed(static_cast<char*>(base) + (index + i) * kSize, parts[i / kPart]);
  }

  CLEAVE_DEVICE float operator[](uint32_t i) const { return load_element(Type, parts[i / kPart].bytes(), i % kPart); }
};

/// Divides by `smooth` from column `col` on.
template <QuantizeConfig C>
CLEAVE_DEVICE void smooth_values(const QuantizeParams& p, int64_t col, float (&values)[C.width]) {
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

/// x, or what was written of x + residual, from (row, col) on.
template <QuantizeConfig C>
CLEAVE_DEVICE auto load_summed(const QuantizeParams& p, uint32_t row, int64_t col) {
  if constexpr (C.has_residual) {
    return Elements<C.residual, C.width>::load(p.residual_out, row * p.residual_out_stride + col);
  } else {
    return Elements<C.x, C.width>::load(p.x, row * p.x_stride + col);
  }
}

/// x from (row, col) on, smoothed, or the gate and the up there joined.
template <QuantizeConfig C>
CLEAVE_DEVICE void load_values(const QuantizeParams& p, uint32_t row, int64_t col, float (&values)[C.width]) {
  const auto x = Elements<C.x, C.width>::load(p.x, row * p.x_stride + col);
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < C.width; ++i) values[i] = x[i];
  if constexpr (C.gated) {
    const auto up = Elements<C.x, C.width>::load(p.x, row * p.x_stride + p.cols + col);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.width; ++i) values[i] = silu(values[i]) * up[i];
  }
  smooth_values<C>(p, col, values);
}

/// Neighbours as q has them.
template <QuantizeConfig C, uint32_t Count>
CLEAVE_DEVICE Packed<Count> packed_values(const Quantizer& quantizer, const float (&values)[Count]) {
  Packed<Count> packed;
  if constexpr (is_fp8(C.q) && Count > 1) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Count; i += 2) {
      reinterpret_cast<uint16_t*>(packed.bytes())[i / 2] = pack_fp8<info_of(C.q).mantissa>(
          quantized(quantizer, C.symmetric, values[i]), quantized(quantizer, C.symmetric, values[i + 1]));
    }
  } else {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Count; ++i)
      store_element(C.q, packed.bytes(), i, quantized(quantizer, C.symmetric, values[i]));
  }
  return packed;
}

/// q from (row, col) on.
template <QuantizeConfig C>
CLEAVE_DEVICE void store_values(const QuantizeParams& p, uint32_t row, int64_t col, const Quantizer& quantizer,
                                const float (&values)[C.width]) {
  store_packed(static_cast<char*>(p.q) + row * p.q_stride + col, packed_values<C>(quantizer, values));
}

}  // namespace cleave
