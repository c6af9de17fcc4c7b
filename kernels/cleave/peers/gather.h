// What every rank has at one place of its staging, rank after rank, once all of them have come; of nothing, a barrier.
#pragma once

#include "cleave/peers/gather_config.h"
#include "cleave/peers/gathered_piece.h"
#include "cleave/peers/meeting.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <GatherConfig C>
CLEAVE_DEVICE void gather(const GatherParams& p) {
  using Piece = typename GatheredPiece<C.bytes>::Type;
  constexpr uint32_t kAhead = 4;
  ptx::grid_dependency_wait();
  if (p.meeting.size > 1 && !meet(p.meeting)) return;
  ptx::launch_dependents();
  const uint32_t step = gridDim.x * C.threads;
  CLEAVE_NO_UNROLL
  for (uint32_t first = blockIdx.x * C.threads + threadIdx.x; first < p.pieces; first += kAhead * step) {
    Piece pieces[kAhead];
    uint32_t places[kAhead];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t number = first + i * step;
      if (number >= p.pieces) continue;
      // From the next rank on, so that none is read by all at once.
      const uint32_t turn = p.rank.quotient(number), from = p.meeting.rank + 1 + turn;
      const uint32_t rank = from < p.meeting.size ? from : from - p.meeting.size;
      const uint32_t piece = number - turn * p.rank.divisor;
      const char* const block = reinterpret_cast<const char*>(p.meeting.headers[rank]) + p.offset;
      pieces[i] = reinterpret_cast<const Piece*>(block)[piece];
      places[i] = rank * p.rank.divisor + piece;
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i)
      if (first + i * step < p.pieces) static_cast<Piece*>(p.out)[places[i]] = pieces[i];
  }
}

}  // namespace cleave
