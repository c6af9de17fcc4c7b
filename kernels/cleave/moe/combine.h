// Adds up the rows of every token's slots, weighted or not, in the order of the slots and in
// float32. Dropped slots add nothing.
//
// Roles      a CTA has a piece of one token, and each thread one access of it
// Timeline   some slots' rows are loaded together, then added one after the other
#pragma once

#include "cleave/core/element.h"
#include "cleave/core/multiply_add.h"
#include "cleave/memory/packed.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// Value `i` of an access. Integers become floats by a permutation of bytes and a difference, of which an SM makes four
/// times as many as conversions.
template <DType Type>
CLEAVE_DEVICE float held_value(const uint8_t* bytes, uint32_t i) {
  if constexpr (Type == DType::i8) {
    const uint32_t raised = (uint32_t(bytes[i]) ^ 0x80u) | 0x4b000000u;
    return __uint_as_float(raised) - 8388736.0f;  // 2^23 + 128
  } else {
    return load_element(Type, bytes, i);
  }
}

template <MoeConfig C>
CLEAVE_DEVICE void combine(const MoeParams& p) {
  constexpr uint32_t kInFlight = 4, kValues = C.width / size_of(C.type);
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  const uint32_t token = blockIdx.x;
  const uint32_t byte = (blockIdx.y * kRowThreads + threadIdx.x) * C.width;
  if (byte >= p.row_bytes) return;

  float sums[kValues] = {};
  const uint32_t end = (token + 1) * p.top_k;
  for (uint32_t first = token * p.top_k; first < end; first += kInFlight) {
    Packed<C.width> held[kInFlight];
    float factors[kInFlight];
    bool takes_part[kInFlight];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kInFlight; ++i) {
      const int32_t row = first + i < end ? p.positions[first + i] : -1;
      takes_part[i] = uint32_t(row) < p.slots;
      if (!takes_part[i]) continue;
      held[i] = load_packed<C.width>(static_cast<char*>(p.rows) + row * p.row_stride + byte);
      if constexpr (C.scaled) factors[i] = p.row_scales[int64_t(row) * p.scales.divisor + byte / 128];
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kInFlight; ++i) {
      if (!takes_part[i]) continue;
      float factor = C.has_weights ? load_element(C.weights, p.weights, first + i) : 1.0f;
      if constexpr (C.scaled) factor *= factors[i];
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kValues; ++j)
        sums[j] = multiply_add(factor, held_value<C.type>(held[i].bytes(), j), sums[j]);
    }
  }
  constexpr DType kTokens = C.scaled ? C.wide : C.type;
  constexpr uint32_t kPart = min_of(kValues * size_of(kTokens), 16u), kOfPart = kPart / size_of(kTokens);
  char* const to = static_cast<char*>(p.tokens) + token * p.token_stride + byte / size_of(C.type) * size_of(kTokens);
  CLEAVE_UNROLL
  for (uint32_t first = 0; first < kValues; first += kOfPart) {
    Packed<kPart> result;
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kOfPart; ++j) store_element(kTokens, result.bytes(), j, sums[first + j]);
    store_packed(to + first * size_of(kTokens), result);
  }
}

}  // namespace cleave
