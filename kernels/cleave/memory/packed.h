// Bytes that move together, in one access.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// Several words are held as such: compilers take arrays of bytes apart, byte by byte.
template <uint32_t Bytes>
struct PackedUnit {
  using Type = uint32_t;
};
template <uint32_t Bytes>
  requires(Bytes <= 4)
struct PackedUnit<Bytes> {
  using Type = uint8_t;
};

template <uint32_t Bytes>
struct alignas(Bytes) Packed {
  using Unit = typename PackedUnit<Bytes>::Type;
  Unit units[Bytes / sizeof(Unit)];

  CLEAVE_HD uint8_t* bytes() { return reinterpret_cast<uint8_t*>(units); }
  CLEAVE_HD const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(units); }
};

#if defined(__CUDACC__)
template <uint32_t Bytes>
CLEAVE_DEVICE Packed<Bytes> load_packed(const void* from) {
  return *static_cast<const Packed<Bytes>*>(from);
}

template <uint32_t Bytes>
CLEAVE_DEVICE void store_packed(void* to, const Packed<Bytes>& packed) {
  *static_cast<Packed<Bytes>*>(to) = packed;
}
#endif

}  // namespace cleave
