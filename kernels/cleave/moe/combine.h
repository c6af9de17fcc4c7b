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
    bool takes_part[kInFlight];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kInFlight; ++i) {
      const int32_t row = first + i < end ? p.positions[first + i] : -1;
      takes_part[i] = uint32_t(row) < p.slots;
      if (takes_part[i]) held[i] = load_packed<C.width>(static_cast<char*>(p.rows) + row * p.row_stride + byte);
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kInFlight; ++i) {
      if (!takes_part[i]) continue;
      const float weight = C.has_weights ? load_element(C.weights, p.weights, first + i) : 1.0f;
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kValues; ++j)
        sums[j] = multiply_add(weight, load_element(C.type, held[i].bytes(), j), sums[j]);
    }
  }
  Packed<C.width> result;
  CLEAVE_UNROLL
  for (uint32_t j = 0; j < kValues; ++j) store_element(C.type, result.bytes(), j, sums[j]);
  store_packed(static_cast<char*>(p.tokens) + token * p.token_stride + byte, result);
}

}  // namespace cleave
