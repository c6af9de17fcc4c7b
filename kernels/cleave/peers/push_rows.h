// What this rank has goes to one place of every rank's staging, rank after rank, its own too; then all ranks meet. So
// it is there for what follows after one trip between GPUs, where what is read behind a meeting takes two.
//
// Each CTA sends a part of the bytes, tells those of its number that it has, and waits for theirs: all are there when
// all CTAs have ended. A place is written again two calls later, when every rank is known to have ended this one.
#pragma once

#include "cleave/core/math.h"
#include "cleave/peers/gathered_piece.h"
#include "cleave/peers/meeting.h"
#include "cleave/peers/push_rows_config.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// Calls visit(pieces, places, count) for the pieces of a CTA's chunk, some of whose loads are under way together.
template <uint32_t Bytes, uint32_t Threads, class Visit>
CLEAVE_DEVICE void for_pieces(const char* from, uint64_t chunk, uint64_t bytes, const Visit& visit) {
  using Piece = typename GatheredPiece<Bytes>::Type;
  constexpr uint32_t kAhead = 4;
  const uint64_t end = min_of((blockIdx.x + 1) * chunk, bytes);
  CLEAVE_NO_UNROLL
  for (uint64_t first = blockIdx.x * chunk + threadIdx.x * Bytes; first < end; first += kAhead * Threads * Bytes) {
    Piece pieces[kAhead];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i)
      if (const uint64_t at = first + i * Threads * Bytes; at < end)
        pieces[i] = *reinterpret_cast<const Piece*>(from + at);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i)
      if (const uint64_t at = first + i * Threads * Bytes; at < end) visit(at, pieces[i]);
  }
}

/// To all ranks, from the next one on, so that none receives from all at the same time.
template <uint32_t Bytes, bool Keeps>
CLEAVE_DEVICE void send(const MeetingParams& meeting, const PushedRows& part) {
  using Piece = typename GatheredPiece<Bytes>::Type;
  const uint64_t own = meeting.rank * part.share_bytes;
  for_pieces<Bytes, PushRowsConfig::threads>(
      part.own, part.chunk, part.own_bytes, [&](uint64_t at, const Piece& piece) {
        for (uint32_t step = 1; step <= meeting.size; ++step) {
          const uint32_t next = meeting.rank + step, peer = next < meeting.size ? next : next - meeting.size;
          char* const block = reinterpret_cast<char*>(meeting.headers[peer]);
          *reinterpret_cast<Piece*>(block + part.offset + own + at) = piece;
        }
        if constexpr (Keeps) *reinterpret_cast<Piece*>(part.out + own + at) = piece;
      });
}

/// What the others have sent.
template <uint32_t Bytes>
CLEAVE_DEVICE void keep(const MeetingParams& meeting, const PushedRows& part) {
  using Piece = typename GatheredPiece<Bytes>::Type;
  for (uint32_t rank = 0; rank < meeting.size; ++rank) {
    if (rank == meeting.rank) continue;
    const char* const from = reinterpret_cast<const char*>(meeting.headers[meeting.rank]) + part.offset;
    char* const to = part.out + rank * part.share_bytes;
    for_pieces<Bytes, PushRowsConfig::threads>(
        from + rank * part.share_bytes, part.chunk, part.share_bytes,
        [&](uint64_t at, const Piece& piece) { *reinterpret_cast<Piece*>(to + at) = piece; });
  }
}

template <PushRowsConfig C>
CLEAVE_DEVICE void push_rows(const PushRowsParams& p) {
  ptx::grid_dependency_wait();
  send<C.bytes, C.keeps>(p.meeting, p.parts[0]);
  if constexpr (C.second_bytes > 0) send<C.second_bytes, C.keeps>(p.meeting, p.parts[1]);
  __syncthreads();  // what all threads have sent comes before the word that says so
  if (p.meeting.size > 1 && !meet(p.meeting)) return;
  ptx::launch_dependents();
  if constexpr (C.keeps) {
    keep<C.bytes>(p.meeting, p.parts[0]);
    if constexpr (C.second_bytes > 0) keep<C.second_bytes>(p.meeting, p.parts[1]);
  }
}

}  // namespace cleave
