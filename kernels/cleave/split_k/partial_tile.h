// Partial tiles in global memory, in fragment order: block by block, and within a block one
// float4 per math thread, so every access is a full, coalesced line whatever the tile's layout.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/threads.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/sync.h"
#include "cleave/tile/fragment.h"

namespace cleave {

/// float4s from a partial tile to the next.
template <GemmConfig C>
inline constexpr uint32_t kPartialTile = Fragment<C>::kBlocks * math_threads(C);

template <GemmConfig C>
CLEAVE_DEVICE float4* partial_tile_block(float* partials, uint32_t slot, uint32_t block, uint32_t thread) {
  return reinterpret_cast<float4*>(partials) + uint64_t(slot) * kPartialTile<C> + block * math_threads(C) + thread;
}

/// The four accumulators of a block on their way through memory: the bits of floats or integers.
CLEAVE_DEVICE float4 pack_block(const float* v) {
  return make_float4(v[0], v[1], v[2], v[3]);
}
CLEAVE_DEVICE float4 pack_block(const int32_t* v) {
  return make_float4(__int_as_float(v[0]), __int_as_float(v[1]), __int_as_float(v[2]), __int_as_float(v[3]));
}
CLEAVE_DEVICE void unpack_block(const float4& part, float* v) {
  v[0] = part.x, v[1] = part.y, v[2] = part.z, v[3] = part.w;
}
CLEAVE_DEVICE void unpack_block(const float4& part, int32_t* v) {
  v[0] = __float_as_int(part.x), v[1] = __float_as_int(part.y);
  v[2] = __float_as_int(part.z), v[3] = __float_as_int(part.w);
}
CLEAVE_DEVICE void add_block(float* v, const float4& part) {
  v[0] += part.x;
  v[1] += part.y;
  v[2] += part.z;
  v[3] += part.w;
}
CLEAVE_DEVICE void add_block(int32_t* v, const float4& part) {
  v[0] += __float_as_int(part.x);
  v[1] += __float_as_int(part.y);
  v[2] += __float_as_int(part.z);
  v[3] += __float_as_int(part.w);
}

template <GemmConfig C>
CLEAVE_DEVICE void write_partial(float* partials, uint32_t slot, const Sums<C>& sums, uint32_t thread) {
  CLEAVE_UNROLL
  for (uint32_t block = 0; block < Fragment<C>::kBlocks; ++block)
    __stcg(partial_tile_block<C>(partials, slot, block, thread), pack_block(sums + block * 4));
}

template <GemmConfig C>
CLEAVE_DEVICE void add_partial(float* partials, uint32_t slot, Sums<C>& sums, uint32_t thread) {
  CLEAVE_UNROLL
  for (uint32_t block = 0; block < Fragment<C>::kBlocks; ++block)
    add_block(sums + block * 4, __ldcg(partial_tile_block<C>(partials, slot, block, thread)));
}

template <GemmConfig C>
CLEAVE_DEVICE void read_partial(float* partials, uint32_t slot, Sums<C>& sums, uint32_t thread) {
  CLEAVE_UNROLL
  for (uint32_t block = 0; block < Fragment<C>::kBlocks; ++block)
    unpack_block(__ldcg(partial_tile_block<C>(partials, slot, block, thread)), sums + block * 4);
}

/// Polls of a counter before a wait gives up: some ten seconds. They are counted instead of timed, so that a debugger
/// or a sanitizer, which slows all CTAs alike, does not end the wait.
inline constexpr uint32_t kMostLooks = 1u << 24;

/// All math threads wait until `*counter` is `turn`, and then see everything that was written before. If it never is,
/// because the counters were not zero when the launch began, the launch fails. (Not by an assertion: a function call
/// anywhere in a kernel serialises its WGMMAs.)
template <GemmConfig C>
CLEAVE_DEVICE void wait_for_turn(const uint32_t* counter, uint32_t turn, uint32_t thread) {
  if (thread == 0) {
    for (uint32_t looks = 0; ptx::load_acquire(counter) != turn; ++looks) {
      if (looks == kMostLooks) ptx::trap();
    }
  }
  math_sync<C>();
}

/// Whether `others` have arrived at the counter. All math threads then see what those wrote.
template <GemmConfig C>
CLEAVE_DEVICE bool others_arrived(const uint32_t* counter, uint32_t others, uint32_t thread) {
  const bool all = thread == 0 && ptx::load_acquire(counter) == others;
  return ptx::named_barrier_any(kMathBarrier, math_threads(C), all);
}

/// To be called when all math threads have written. Returns true in all of them if this CTA is the last of `count` to
/// arrive at the counter, which is then zero again; it sees what the others wrote.
template <GemmConfig C>
CLEAVE_DEVICE bool arrive_last(uint32_t* counter, uint32_t count, uint32_t thread) {
  math_sync<C>();
  bool last = false;
  if (thread == 0) {
    last = ptx::add_acquire_release(counter, 1) == count - 1;
    if (last) *counter = 0;
  }
  return ptx::named_barrier_any(kMathBarrier, math_threads(C), last);
}

}  // namespace cleave
