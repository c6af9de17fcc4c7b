// Copies every token to the rows of its slots. The rows of dropped slots are zeroed.
//
// Roles      a CTA has a piece of one token, or several short tokens, and each thread some accesses of one
// Timeline   the piece and the places of some slots' rows are read together, and the piece is stored to each
#pragma once

#include "cleave/memory/packed.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <MoeConfig C>
CLEAVE_DEVICE void scatter(const MoeParams& p) {
  constexpr uint32_t kInFlight = 8, kNoRow = 0x7fffffff;
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  constexpr uint32_t kStep = C.lanes * C.width;
  const uint32_t token = blockIdx.x * (kRowThreads / C.lanes) + threadIdx.x / C.lanes;
  const uint32_t begin = blockIdx.y * kScatterAccesses * kStep + threadIdx.x % C.lanes * C.width;
  const uint32_t end = (token + 1) * p.top_k;
  if (end > p.slots) return;
  const auto from = static_cast<const char*>(p.tokens) + token * p.token_stride;
  Packed<C.width> held[kScatterAccesses];
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kScatterAccesses; ++i) {
    const uint32_t byte = begin + i * kStep;
    if (byte < p.row_bytes) held[i] = load_packed<C.width>(from + byte);
  }
  for (uint32_t first = token * p.top_k; first < end; first += kInFlight) {
    int32_t positions[kInFlight];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kInFlight; ++i) positions[i] = first + i < end ? p.positions[first + i] : int32_t(kNoRow);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kInFlight; ++i) {
      const Signed row(positions[i]);
      if (row.index >= p.slots) continue;
      const auto to = static_cast<char*>(p.rows) + row.index * p.row_stride;
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kScatterAccesses; ++j) {
        const uint32_t byte = begin + j * kStep;
        if (byte < p.row_bytes) store_packed(to + byte, row.dropped ? Packed<C.width>{} : held[j]);
      }
    }
  }
}

}  // namespace cleave
