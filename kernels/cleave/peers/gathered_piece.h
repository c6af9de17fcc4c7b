// What a thread moves at once.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

template <uint32_t Bytes>
struct GatheredPiece;
template <>
struct GatheredPiece<16> {
  using Type = uint4;
};
template <>
struct GatheredPiece<4> {
  using Type = uint32_t;
};
template <>
struct GatheredPiece<1> {
  using Type = uint8_t;
};

}  // namespace cleave
