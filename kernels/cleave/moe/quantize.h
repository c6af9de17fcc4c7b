// Quantises every token, and copies it to the rows of its slots, with its scales. The rows of dropped slots are zeroed.
//
// Roles      a team of lanes has 128 columns of a token
// Timeline   the columns and the places of some slots' rows are read together; the team finds the scale, converts, and
//            stores to each row; each of its lanes has the scale of another row
#pragma once

#include "cleave/core/quantizer.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/sync.h"
#include "cleave/quantize/access.h"
#include "cleave/quantize/reduce_reach.h"

namespace cleave {

template <MoeConfig C>
CLEAVE_DEVICE void quantize(const MoeParams& p) {
  constexpr uint32_t kAccesses = kScaleBlock / kScaleLanes / C.width, kInFlight = kScaleLanes, kNoRow = 0x7fffffff;
  constexpr QuantizeConfig kAsRows = {.x = C.wide, .q = C.type, .width = C.width};
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  const uint32_t group = (blockIdx.x * kRowThreads + threadIdx.x) / kScaleLanes, lane = threadIdx.x % kScaleLanes;
  const uint32_t token = p.scales.quotient(group), scale = group - token * p.scales.divisor;
  const uint32_t slots_end = min_of((token + 1) * p.top_k, p.slots);
  const uint32_t begin = scale * kScaleBlock + lane * C.width;
  const auto col = [&](uint32_t i) { return begin + i * kScaleLanes * C.width; };
  const bool exists = token * p.top_k < p.slots;

  float values[kAccesses][C.width] = {};
  const int64_t first_value = token * (p.token_stride / size_of(C.wide));
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kAccesses; ++i) {
    if (!exists || col(i) >= p.row_bytes) continue;
    const auto held = Elements<C.wide, C.width>::load(p.tokens, first_value + col(i));
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < C.width; ++j) values[i][j] = held[j];
  }
  Reach reach;
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kAccesses; ++i) {
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < C.width; ++j) reach.add(true, values[i][j]);
  }
  const Quantizer quantizer = quantizer_for(C.type, true, false, reduce_lanes<kScaleLanes>(true, reach));
  if (!exists) return;
  Packed<C.width> packed[kAccesses];
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kAccesses; ++i) packed[i] = packed_values<kAsRows>(quantizer, values[i]);

  for (uint32_t first = token * p.top_k; first < slots_end; first += kInFlight) {
    int32_t positions[kInFlight];
    CLEAVE_UNROLL
    for (uint32_t s = 0; s < kInFlight; ++s)
      positions[s] = first + s < slots_end ? p.positions[first + s] : int32_t(kNoRow);
    CLEAVE_UNROLL
    for (uint32_t s = 0; s < kInFlight; ++s) {
      const Signed row(positions[s]);
      if (row.index >= p.slots) continue;
      if (lane == s) p.row_scales[int64_t(row.index) * p.scales.divisor + scale] = row.dropped ? 0.0f : quantizer.scale;
      const auto to = static_cast<char*>(p.rows) + row.index * p.row_stride;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kAccesses; ++i) {
        if (col(i) < p.row_bytes) store_packed(to + col(i), row.dropped ? Packed<C.width>{} : packed[i]);
      }
    }
  }
}

}  // namespace cleave
