// Some neighbouring channels of a pixel, which a thread loads and stores at once.
#pragma once

#include "cleave/core/element.h"
#include "cleave/core/macros.h"

namespace cleave {

/// A vector of channels as it lies in memory.
template <uint32_t Bytes>
struct RawVector {
  uint32_t words[Bytes < 4 ? 1 : Bytes / 4] = {};
};

template <uint32_t Bytes>
CLEAVE_DEVICE RawVector<Bytes> load_vector(const char* from, bool exists) {
  RawVector<Bytes> raw;
  if (!exists) return raw;
  if constexpr (Bytes == 16) {
    const uint4 v = *reinterpret_cast<const uint4*>(from);
    raw.words[0] = v.x, raw.words[1] = v.y, raw.words[2] = v.z, raw.words[3] = v.w;
  } else if constexpr (Bytes == 8) {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    raw.words[0] = v.x, raw.words[1] = v.y;
  } else if constexpr (Bytes == 4) {
    raw.words[0] = *reinterpret_cast<const uint32_t*>(from);
  } else {
    raw.words[0] = *reinterpret_cast<const uint16_t*>(from);
  }
  return raw;
}

/// Element `i` of a vector, `i` being known to the compiler.
template <DType T, uint32_t Bytes>
CLEAVE_DEVICE float element_of(const RawVector<Bytes>& raw, uint32_t i) {
  if constexpr (size_of(T) == 4) {
    return __uint_as_float(raw.words[i]);
  } else {
    const uint32_t word = raw.words[i / 2], bits = i % 2 == 0 ? word & 0xffff : word >> 16;
    if constexpr (T == DType::bf16) return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    return f16_to_float(uint16_t(bits));
  }
}

template <DType T, uint32_t Count>
CLEAVE_DEVICE void store_vector(char* to, const float (&values)[Count]) {
  if constexpr (Count == 1) {
    store_element(T, to, 0, values[0]);
  } else if constexpr (size_of(T) == 1) {
    uint32_t words[Count / 4];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Count; i += 4)
      words[i / 4] = pack_bytes(T, values[i], values[i + 1]) | pack_bytes(T, values[i + 2], values[i + 3]) << 16;
    if constexpr (Count == 8) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<uint32_t*>(to) = words[0];
    }
  } else if constexpr (size_of(T) == 4) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Count; i += 2)
      reinterpret_cast<float2*>(to)[i / 2] = make_float2(values[i], values[i + 1]);
  } else if constexpr (Count == 8) {
    *reinterpret_cast<uint4*>(to) = make_uint4(pack_pair(T, values[0], values[1]), pack_pair(T, values[2], values[3]),
                                               pack_pair(T, values[4], values[5]), pack_pair(T, values[6], values[7]));
  } else if constexpr (Count == 2) {
    *reinterpret_cast<uint32_t*>(to) = pack_pair(T, values[0], values[1]);
  } else {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Count; i += 4)
      reinterpret_cast<uint2*>(to)[i / 4] =
          make_uint2(pack_pair(T, values[i], values[i + 1]), pack_pair(T, values[i + 2], values[i + 3]));
  }
}

/// The same, `AtOnce` by `AtOnce`: a power of two.
template <DType T, uint32_t AtOnce, uint32_t Count>
CLEAVE_DEVICE void store_vectors(char* to, const float (&values)[Count]) {
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < Count; i += AtOnce) {
    float some[AtOnce];
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < AtOnce; ++j) some[j] = values[i + j];
    store_vector<T>(to + i * size_of(T), some);
  }
}

}  // namespace cleave
