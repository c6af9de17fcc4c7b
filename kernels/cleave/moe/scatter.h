// Copies every token to the rows of its slots. The rows of dropped slots are zeroed.
//
// Roles      a CTA has a piece of one token, and each thread some accesses of the piece
// Timeline   the piece is read once, and stored top_k times
#pragma once

#include "cleave/memory/packed.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <MoeConfig C>
CLEAVE_DEVICE void scatter(const MoeParams& p) {
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  constexpr uint32_t kStep = kRowThreads * C.width;
  const uint32_t token = blockIdx.x;
  const uint32_t begin = blockIdx.y * kScatterAccesses * kStep + threadIdx.x * C.width;
  const auto from = static_cast<const char*>(p.tokens) + token * p.token_stride;
  Packed<C.width> held[kScatterAccesses];
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kScatterAccesses; ++i) {
    const uint32_t byte = begin + i * kStep;
    if (byte < p.row_bytes) held[i] = load_packed<C.width>(from + byte);
  }
  for (uint32_t slot = token * p.top_k; slot < (token + 1) * p.top_k; ++slot) {
    const Signed row(p.positions[slot]);
    if (row.index >= p.slots) continue;
    const auto to = static_cast<char*>(p.rows) + row.index * p.row_stride;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kScatterAccesses; ++i) {
      const uint32_t byte = begin + i * kStep;
      if (byte < p.row_bytes) store_packed(to + byte, row.dropped ? Packed<C.width>{} : held[i]);
    }
  }
}

}  // namespace cleave
